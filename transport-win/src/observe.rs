//! Looking into sessions of other processes: this system shows nobody what another process has mapped, and sections
//! have no names here.

use bellwire_core::wire::PAGE_SIZE;
pub use bellwire_transport::{ObserveError, PageMap};

/// A page of another process: there is none.
#[derive(Debug)]
pub struct View(Never);

#[derive(Debug)]
enum Never {}

/// The pages that processes have mapped.
///
/// # Errors
/// [`ObserveError::Unavailable`], always.
pub fn pages() -> Result<Vec<PageMap>, ObserveError> {
    Err(ObserveError::Unavailable)
}

/// What the process calls itself.
pub fn command(_: u32) -> Option<String> {
    None
}

impl View {
    /// Looks at a page that was found.
    ///
    /// # Errors
    /// [`ObserveError::Unavailable`], always.
    pub fn open(_: &PageMap) -> Result<Self, ObserveError> {
        Err(ObserveError::Unavailable)
    }

    /// A copy of the page as it is now.
    ///
    /// # Errors
    /// None: there is no view.
    pub fn read(&self, _: &mut [u8; PAGE_SIZE]) -> Result<(), ObserveError> {
        match self.0 {}
    }
}
