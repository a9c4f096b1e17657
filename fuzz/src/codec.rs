//! Messages by derive, Protocol Buffers and serde. The first byte of the input selects which.

use std::collections::BTreeMap;
use std::fmt::Debug;

use bellwire::Message;
use bellwire_codec::{Postcard, Proto};
use serde::{Deserialize, Serialize};

#[derive(bellwire::Message, Debug)]
struct Fixed {
    is_on: bool,
    level: Level,
    counters: [u32; 3],
    ratio: f64,
    pair: (u8, Option<i16>),
}

#[derive(bellwire::Message, Debug)]
#[repr(u16)]
enum Level {
    Low = 1,
    High = 0xff01,
}

#[derive(bellwire::Message, Debug)]
struct Varied {
    name: String,
    fixed: [Level; 2],
    parts: Vec<Part>,
    rest: Vec<u8>,
}

#[derive(bellwire::Message, Debug)]
struct Part {
    label: Option<String>,
    numbers: Vec<u16>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Tree {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(sint64, repeated, tag = "2")]
    numbers: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    children: Vec<Tree>,
    #[prost(btree_map = "uint32, bytes", tag = "4")]
    entries: BTreeMap<u32, Vec<u8>>,
}

#[derive(Serialize, Deserialize, Debug)]
enum Any {
    Unit,
    Nothings(Vec<()>),
    Number(i128),
    Text { text: String, letter: Option<char> },
    Many(Vec<Any>),
    Named(BTreeMap<String, Box<Any>>),
}

/// Decodes the bytes; a value is encoded to bytes that are decoded to the same value.
pub fn run(input: &[u8]) {
    let Some((which, bytes)) = input.split_first() else { return };
    match which % 4 {
        0 => decode::<Fixed>(bytes),
        1 => decode::<Varied>(bytes),
        2 => decode::<Proto<Tree>>(bytes),
        _ => decode::<Postcard<Any>>(bytes),
    }
}

fn decode<T: Message + Debug>(bytes: &[u8]) {
    match T::decode(bytes) {
        Ok(value) => {
            let mut once = Vec::new();
            value.encode(&mut once);
            let mut twice = Vec::new();
            T::decode(&once).unwrap().encode(&mut twice);
            assert_eq!(once, twice, "{value:?}");
            if T::LAYOUT.is_some() {
                assert_eq!(once.len(), bytes.len());
                let mut values = Vec::new();
                if let Some(len) = T::LEN {
                    T::decode_all(&once.repeat(2), &mut values).unwrap();
                    let mut written = vec![0xff; len];
                    values[1].write(&mut written);
                    assert_eq!(written, once);
                }
            }
        }
        Err(malformed) => {
            assert!(malformed.at <= bytes.len() && malformed.len == bytes.len(), "{malformed}");
        }
    }
}
