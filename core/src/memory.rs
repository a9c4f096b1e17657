use crate::sync::Ordering;
use crate::wire::{HEADER, PageState};

/// The words of a page. The value is the word's offset in bytes; `docs/wire.md` is the reference.
///
/// Each word that a peer may park on or poll has 128 bytes to itself: two cache lines, because the adjacent-line
/// prefetcher of x86 fetches pairs of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Word {
    /// Bytes that the page's owner has published in its lane. Monotonic.
    Tail = 0x080,
    /// Bytes that the page's owner has taken from its peer's lane. Monotonic.
    Head = 0x100,
    /// "Ring me when your tail passes this"; `u64::MAX` means "do not ring".
    WantData = 0x180,
    /// "Ring me when your head passes this"; `u64::MAX` means "do not ring".
    WantSpace = 0x200,
    /// A [`PageState`](crate::wire::PageState).
    State = 0x280,
    /// The doorbell on which the owner wants to be rung now: a [`Doorbell`](crate::wire::Doorbell).
    Doorbell = 0x288,
    /// When the owner last rang, in nanoseconds of the monotonic clock. A hint for the spin policy.
    RungAt = 0x300,
    /// How often the owner rang.
    Rings = 0x308,
    /// How often a client parked; a server, which sleeps for all its sessions together, leaves it 0.
    Parks = 0x310,
}

impl Word {
    /// Returns the word's offset in its page, in bytes.
    pub const fn offset(self) -> usize {
        self as usize
    }
}

/// The memory that only this side writes: its page and its lane.
///
/// # Contract
/// `store` writes the word in one piece with at least the ordering given. `write` copies all of `bytes`
/// into the lane; a later `store` with [`Ordering::Release`] makes them visible to a peer that loads the
/// stored value with [`Ordering::Acquire`].
pub trait OwnMemory {
    /// Stores a word of the own page.
    fn store(&self, word: Word, value: u64, order: Ordering);

    /// Copies `bytes` into the own lane at `offset`. The caller has checked that they fit.
    fn write(&self, offset: usize, bytes: &[u8]);

    /// Writes a record's header and, behind it, its payload. The caller has checked that they fit.
    #[inline]
    fn write_record(&self, offset: usize, header: [u8; HEADER], payload: &[u8]) {
        self.write(offset, &header);
        self.write(offset + HEADER, payload);
    }

    /// Stores entry `slot` of the [table of samples](crate::wire::SAMPLES_AT) in the own page, each word in one
    /// piece. May do nothing where there are no probes.
    fn stamp(&self, slot: usize, entry: [u64; 4]) {
        let _ = (slot, entry);
    }

    /// Stores a value at `offset` in the own page, in one piece, for observers: a [`Counter`](crate::wire::Counter)
    /// or a bucket of [`Latency`](crate::wire::Latency). Relaxed. May do nothing.
    #[inline]
    fn export_counter(&self, offset: usize, value: u64) {
        let _ = (offset, value);
    }
}

/// The memory that the peer writes: its page and its lane. Every load from it goes through this trait, so that a test
/// or a fuzzer can supply each value. No value is trusted.
///
/// # Contract
/// `load` reads the word in one piece with at least the ordering given. `read` copies `into.len()` bytes
/// out of the peer's lane, reading each byte once: what a caller sees in `into` afterwards cannot change.
pub trait PeerMemory {
    /// Loads a word of the peer's page.
    fn load(&self, word: Word, order: Ordering) -> u64;

    /// Copies bytes of the peer's lane at `offset`. The caller has checked that they are inside it.
    fn read(&self, offset: usize, into: &mut [u8]);

    /// Copies a record's header at `offset` in the peer's lane, as the two words that
    /// [`Header::from_words`](crate::wire::Header::from_words) takes.
    #[inline]
    fn read_header(&self, offset: usize) -> [u64; 2] {
        let mut bytes = [0; HEADER];
        self.read(offset, &mut bytes);
        let words: [[u8; 8]; 2] = zerocopy::transmute!(bytes);
        words.map(u64::from_le_bytes)
    }

    /// Returns whether the peer's page reports the session closed. Acquire: what it published before is then visible.
    fn says_closed(&self) -> bool {
        // mutant: equivalent because whoever acts on it loads the tail again, by Acquire, before it reads anything
        let state = PageState::parse(self.load(Word::State, Ordering::Acquire));
        matches!(state, Some((PageState::Closed, _)))
    }

    /// Loads entry `slot` of the table of samples in the peer's page, each word in one piece; the words may belong to
    /// different entries. Zeroes where there are no probes.
    fn stamped(&self, slot: usize) -> [u64; 4] {
        let _ = slot;
        [0; 4]
    }

    /// Loads the first word of [`PeerMemory::stamped`]: the end position of the message that the entry describes.
    #[inline]
    fn stamped_end(&self, slot: usize) -> u64 {
        let [end, ..] = self.stamped(slot);
        end
    }

    /// Hints that the peer's lane will be read at `offset`, inside the lane, immediately. May do nothing.
    #[inline]
    fn will_read(&self, offset: usize) {
        let _ = offset;
    }
}
