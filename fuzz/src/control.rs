//! Control messages: a descriptor count, then the bytes as they came.

use bellwire_core::wire::{ControlError, MAX_CONTROL, Message, PROTOCOL, Versions};

/// Parses a control message. What was parsed is written again, and is the same.
pub fn run(input: &[u8]) {
    let Some((fds, bytes)) = input.split_first() else { return };
    let message = match Message::parse(bytes, usize::from(*fds)) {
        Ok(message) => message,
        Err(ControlError::Version(Versions { min, max })) => {
            assert!(min <= max, "a range that is none");
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
    assert_eq!(len, bytes.len(), "{message:?} has one length");
    assert_eq!(Message::parse(&again[..len], (*fds).into()), Ok(message.clone()));
    match message {
        // Bytes after the reason in its field mean nothing.
        Message::Refuse(refuse) => {
            assert!(!refuse.reason().chars().any(char::is_control));
        }
        message => assert_eq!(&again[..len], bytes, "{message:?} says all that was there"),
    }
}
