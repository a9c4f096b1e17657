use bellwire_core::sync::Ordering;
use bellwire_core::wire::{BoardHeader, BoardState, BoardWord, BroadcastRing, PageError};
use bellwire_core::{Instant, ServiceName, Woken};

use crate::transport::link::Link;
use crate::transport::region::PeerRegion;

/// A client's read-only mapping of its service's board.
#[derive(Debug)]
pub(crate) struct Board {
    region: PeerRegion,
    publisher: u64,
}

impl Board {
    /// Checks that a mapped page is the board of this service.
    pub(crate) fn check(region: PeerRegion, name: ServiceName) -> Result<Self, PageError> {
        let bytes = region.read_header::<{ size_of::<BoardHeader>() }>(0);
        let header: BoardHeader = zerocopy::transmute!(bytes);
        header.check(name)?;
        Ok(Self { region, publisher: header.created() })
    }

    /// Returns what tells this publisher from those before and after it: when it created its board.
    pub(crate) fn publisher(&self) -> u64 {
        self.publisher
    }

    /// Returns the newest generation: one load. Acquire: what the provider did before publishing happens before.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.region.load_u64(BoardWord::Generation.offset(), Ordering::Acquire)
    }

    /// Returns the broadcast ring in use, if there is one. Acquire: a later request for it finds it, or its successor.
    #[inline]
    pub(crate) fn ring(&self) -> Option<BroadcastRing> {
        BroadcastRing::from_wire(self.region.load_u64(BoardWord::Ring.offset(), Ordering::Acquire))
    }

    /// Parks until the generation moves from `seen`, the provider is gone, or the wait is over.
    pub(crate) fn watch(&self, link: &Link, seen: u64, until: Option<Instant>) -> Woken {
        link.watch(&self.region, BoardWord::Generation.offset(), seen, until)
    }

    /// Returns whether the provider was stopped regularly.
    pub(crate) fn is_stopped(&self) -> bool {
        self.region.load_u64(BoardWord::State.offset(), Ordering::Relaxed)
            == BoardState::Stopped as u64
    }
}
