//! Inspecting sessions of other processes, which Windows does not support: it does not show what another process has mapped,
//! and sections have no names here.

use std::convert::Infallible;

use bellwire_core::wire::PAGE_SIZE;

use crate::{ObserveError, PageMap};

/// A page of another process; cannot exist.
#[derive(Debug)]
pub struct View(Infallible);

/// Returns the pages that processes have mapped, and the number of processes that do not show theirs.
///
/// # Errors
/// [`ObserveError::Unavailable`], always.
pub fn pages() -> Result<(Vec<PageMap>, usize), ObserveError> {
    Err(ObserveError::Unavailable)
}

/// Returns the process's name.
pub(crate) fn command(_: u32) -> Option<String> {
    None
}

impl View {
    /// Opens a page that was found.
    ///
    /// # Errors
    /// [`ObserveError::Unavailable`], always.
    pub fn open(_: &PageMap) -> Result<Self, ObserveError> {
        Err(ObserveError::Unavailable)
    }

    /// Copies the page.
    ///
    /// # Errors
    /// None: there is no view.
    pub fn read(&self, _: &mut [u8; PAGE_SIZE]) -> Result<(), ObserveError> {
        match self.0 {}
    }
}
