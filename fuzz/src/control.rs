//! Control messages: a descriptor count, then the bytes of the message.

use bellwire_core::wire::{ControlError, MAX_CONTROL, Message, PROTOCOL, Versions};

/// Parses a control message, and encodes a valid one again to the same bytes.
pub fn run(input: &[u8]) {
    let Some((fds, bytes)) = input.split_first() else { return };
    let message = match Message::parse(bytes, usize::from(*fds)) {
        Ok(message) => message,
        Err(ControlError::Version(Versions { min, max })) => {
            assert!(min <= max, "an empty range");
            assert!(!(min..=max).contains(&PROTOCOL.max), "a version in common");
            return;
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let mut again = [0; MAX_CONTROL];
    let len = message.encode((*fds).into(), &mut again);
    assert_eq!(len, bytes.len(), "{message:?} has a unique length");
    assert_eq!(Message::parse(&again[..len], (*fds).into()), Ok(message.clone()));
    match message {
        // The bytes after the reason in its field are ignored.
        Message::Refuse(refuse) => {
            assert!(!refuse.reason().chars().any(char::is_control));
        }
        message => assert_eq!(&again[..len], bytes, "{message:?} is encoded to other bytes"),
    }
}
