//! How the tasks of a runtime wait: see [`crate::asynchronous`].

use bellwire_core::Instant;
use bellwire_core::drive::Look;

use super::Session;
use crate::Service;

impl<S: Service> Session<S> {
    /// Returns whether requests wait for an answer.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.drive.in_flight() > 0
    }

    /// See [`bellwire_core::drive::CallDriver::begin_spin`].
    #[inline]
    pub(crate) fn begin_spin(&mut self) -> bool {
        self.drive.begin_spin()
    }

    /// See [`bellwire_core::drive::CallDriver::look`].
    #[inline]
    pub(crate) fn look(&mut self) -> Look {
        self.drive.look()
    }

    /// See [`bellwire_core::drive::CallDriver::end_spin`].
    #[inline]
    pub(crate) fn end_spin(&mut self, found: bool) {
        self.drive.end_spin(found);
    }

    /// See [`bellwire_core::drive::CallDriver::woke`].
    pub(crate) fn woke(&mut self, began: Instant) {
        self.drive.woke(began);
    }

    /// Withdraws what [`Session::arm`] requested: this end looks by itself.
    pub(crate) fn disarm(&self) {
        self.drive.disarm();
    }
}
