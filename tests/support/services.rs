//! The services that the tests provide.

use bellwire::{Caller, HandlerError, Service, Snapshot};

/// Services by their names and types.
macro_rules! services {
    ($($(#[$about:meta])* $sees:vis $service:ident($name:expr): $request:ty => $response:ty;)*) => {$(
        $(#[$about])*
        #[derive(Debug)]
        $sees struct $service;

        impl bellwire::Service for $service {
            const NAME: &'static str = $name;
            type Request = $request;
            type Response = $response;
        }
    )*};
}

pub(crate) use services;

services! {
    /// Echoes its request.
    pub(crate) Echo("echo"): Vec<u8> => Vec<u8>;
}

pub(crate) fn echo(_: &Caller, request: Vec<u8>) -> Result<Vec<u8>, HandlerError> {
    Ok(request)
}

services! {
    /// Waits at a gate, then echoes its request.
    pub(crate) Hold("hold"): u64 => u64;
}

/// Answers, fails or panics as the request says.
#[derive(Debug)]
pub(crate) struct AsRequested;

impl AsRequested {
    pub(crate) const ANSWER: u64 = 0;
    pub(crate) const FAIL: u64 = 1;
    pub(crate) const PANIC: u64 = 2;
    pub(crate) const LARGE: u64 = 3;
}

impl Service for AsRequested {
    const NAME: &'static str = "as-requested";
    type Request = u64;
    type Response = Vec<u8>;
}

services! {
    /// The same service, for a client that sends anything.
    pub(crate) AsRequestedBytes(AsRequested::NAME): Vec<u8> => Vec<u8>;
    /// The same service, for a client that expects another answer.
    pub(crate) AsRequestedNumber(AsRequested::NAME): u64 => u64;
}

pub(crate) fn as_requested(_: &Caller, outcome: u64) -> Result<Vec<u8>, HandlerError> {
    match outcome {
        AsRequested::ANSWER => Ok(b"fine".to_vec()),
        AsRequested::FAIL => Err(HandlerError::with_code(404, "out of\x1b[31m paper")),
        AsRequested::PANIC => panic!("a handler panics, as requested"),
        AsRequested::LARGE => Ok(vec![0; 1 << 20]),
        outcome => Err(HandlerError::new(format!("no such outcome: {outcome}"))),
    }
}

/// A list of numbers, each one above the last; its first 8 bytes are the first number.
#[derive(Debug)]
pub(crate) struct Numbers;

/// The first number that is not one above the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfOrder {
    pub(crate) item: usize,
    pub(crate) offset: usize,
}

impl std::fmt::Display for OutOfOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "item {} at byte {} is out of order", self.item, self.offset)
    }
}

impl std::error::Error for OutOfOrder {}

impl Snapshot for Numbers {
    const NAME: &'static str = "numbers";
    const MAX_LEN: usize = 1 << 20;
    /// How many there are.
    type Index = usize;
    type Error = OutOfOrder;

    fn validate(bytes: &[u8]) -> Result<usize, OutOfOrder> {
        let words = bytes.chunks_exact(8);
        let rest = words.remainder();
        let numbers: Vec<u64> =
            words.map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        let wrong = numbers.windows(2).position(|pair| pair[0] + 1 != pair[1]).map(|at| at + 1);
        let wrong = wrong.or((!rest.is_empty()).then_some(numbers.len()));
        match wrong {
            Some(item) => Err(OutOfOrder { item, offset: item * 8 }),
            None => Ok(numbers.len()),
        }
    }
}

/// The bytes of a well-formed list.
pub(crate) fn numbers(first: u64, count: u64) -> Vec<u8> {
    (first..first + count).flat_map(u64::to_le_bytes).collect()
}
