//! Messages: arbitrary bytes, decoded as each type for which this library implements `Message`.

use bellwire::Message;

/// Decodes the bytes as every type, and encodes a valid value again to the same bytes.
pub fn run(input: &[u8]) {
    decode::<()>(input, input.is_empty());
    decode::<Vec<u8>>(input, true);
    decode::<String>(input, std::str::from_utf8(input).is_ok());
    decode::<[u8; 3]>(input, input.len() == 3);
    decode::<u8>(input, input.len() == 1);
    decode::<i16>(input, input.len() == 2);
    decode::<u32>(input, input.len() == 4);
    decode::<i64>(input, input.len() == 8);
    decode::<u128>(input, input.len() == 16);
}

fn decode<T: Message>(input: &[u8], is_valid: bool) {
    // `take` gets a longer buffer, like the one that a session keeps.
    let mut buffer = [input, &[0xff; 24]].concat();
    for decoded in [T::decode(input), T::take(&mut buffer, input.len())] {
        assert_eq!(decoded.is_ok(), is_valid);
        match decoded {
            Ok(value) => {
                let mut again = Vec::new();
                value.encode(&mut again);
                assert_eq!(again, input);
            }
            Err(malformed) => assert!(malformed.at <= input.len(), "{malformed}"),
        }
    }
}
