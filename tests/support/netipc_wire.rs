//! What a client of netipc sends, written from its public documents alone. For tests, the fuzzer and the hostile clients.
#![allow(
    dead_code,
    clippy::cast_possible_truncation,
    reason = "nobody who includes this file uses all of it, or sends 4 GiB"
)]

pub(crate) const INCREMENT: u16 = 1;
pub(crate) const SNAPSHOT: u16 = 2;
pub(crate) const CGROUPS: u16 = 4;
pub(crate) const APPS: u16 = 5;

/// What a HELLO says.
#[derive(Clone, Copy)]
pub(crate) struct Hello {
    pub(crate) layout: u16,
    pub(crate) flags: u16,
    pub(crate) supported: u32,
    pub(crate) max_request: u32,
    pub(crate) items: u32,
    pub(crate) max_response: u32,
    pub(crate) padding: u32,
    pub(crate) token: u64,
    pub(crate) packet: u32,
}

impl Default for Hello {
    /// Of a client that prefers shared memory, as those of today do.
    fn default() -> Self {
        Self {
            layout: 1,
            flags: 0,
            supported: 7,
            max_request: 1 << 20,
            items: 100_000,
            max_response: 1 << 20,
            padding: 0,
            token: 0,
            packet: 212_992,
        }
    }
}

impl Hello {
    pub(crate) fn payload(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.layout.to_ne_bytes());
        bytes.extend(self.flags.to_ne_bytes());
        for word in [
            self.supported,
            4,
            self.max_request,
            self.items,
            self.max_response,
            self.items,
            self.padding,
        ] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(self.token.to_ne_bytes());
        bytes.extend(self.packet.to_ne_bytes());
        bytes
    }

    pub(crate) fn datagram(self) -> Vec<u8> {
        let payload = self.payload();
        [header(3, 0, 1, payload.len(), 1, 7), payload].concat()
    }
}

/// The header of a message, 32 bytes.
pub(crate) fn header(kind: u16, flags: u16, code: u16, len: usize, items: u32, id: u64) -> Vec<u8> {
    let mut bytes = b"CPIN".to_vec();
    for half in [1, 32, kind, flags, code, 0] {
        bytes.extend(half.to_ne_bytes());
    }
    bytes.extend((len as u32).to_ne_bytes());
    bytes.extend(items.to_ne_bytes());
    bytes.extend(id.to_ne_bytes());
    bytes
}

/// The header of a chunk, 32 bytes.
pub(crate) fn chunk(id: u64, total: usize, index: u32, count: u32, len: usize) -> Vec<u8> {
    let mut bytes = 0x4e43_484b_u32.to_ne_bytes().to_vec();
    bytes.extend(1_u16.to_ne_bytes());
    bytes.extend(0_u16.to_ne_bytes());
    bytes.extend(id.to_ne_bytes());
    for word in [total as u32, index, count, len as u32] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// A directory, and items at multiples of 8.
pub(crate) fn table(items: &[Vec<u8>]) -> Vec<u8> {
    let (mut directory, mut area) = (Vec::new(), Vec::new());
    for item in items {
        area.resize(usize::next_multiple_of(area.len(), 8), 0);
        directory.extend((area.len() as u32).to_ne_bytes());
        directory.extend((item.len() as u32).to_ne_bytes());
        area.extend_from_slice(item);
    }
    [directory, area].concat()
}

/// A request of a look-up.
pub(crate) fn keys(keys: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = vec![1, 0, 0, 0];
    payload.extend((keys.len() as u32).to_ne_bytes());
    payload.extend([0; 8]);
    [payload, table(keys)].concat()
}
