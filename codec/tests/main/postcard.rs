//! Types of serde, and bytes that would make them without end.

use std::collections::BTreeMap;

use bellwire_codec::{Malformed, Message, Postcard};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
enum Shape {
    Point,
    Circle(f64),
    Polygon { corners: Vec<(i32, i32)>, label: Option<String> },
    Group(Vec<Shape>),
    Named(BTreeMap<String, Shape>),
}

#[derive(Serialize, Deserialize, Debug)]
struct Link(Option<Box<Link>>);

fn shapes() -> Shape {
    let polygon =
        Shape::Polygon { corners: vec![(1, -1), (i32::MIN, 0)], label: Some("ü".into()) };
    let group = Shape::Group(vec![Shape::Point, Shape::Circle(0.5), polygon]);
    Shape::Named([("one".to_owned(), group), ("other".to_owned(), Shape::Point)].into())
}

fn why<T: Serialize + for<'a> Deserialize<'a>>(bytes: &[u8]) -> Malformed {
    match Postcard::<T>::decode(bytes) {
        Ok(_) => panic!("decoded"),
        Err(malformed) => malformed,
    }
}

#[test]
fn a_value_is_decoded_as_it_was_encoded_and_every_shorter_or_longer_message_is_malformed() {
    let mut bytes = b"kept".to_vec();
    Postcard(shapes()).encode(&mut bytes);
    assert_eq!(bytes[4..], postcard_bytes());
    bytes.drain(..4);
    assert_eq!(Postcard::decode(&bytes), Ok(Postcard(shapes())));
    for len in 0..bytes.len() {
        why::<Shape>(&bytes[..len]);
    }
    bytes.push(0);
    let malformed = why::<Shape>(&bytes);
    assert_eq!(
        (malformed.at, malformed.why),
        (bytes.len() - 1, "bytes behind the end of the value")
    );
}

/// What the crate itself makes of the value.
fn postcard_bytes() -> Vec<u8> {
    let mut bytes = vec![4, 2, 3];
    bytes.extend(b"one");
    bytes.extend([3, 3, 0, 1]);
    bytes.extend(0.5_f64.to_le_bytes());
    bytes.extend([2, 2, 2, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 1, 2, 0xc3, 0xbc]);
    bytes.push(5);
    bytes.extend(b"other");
    bytes.push(0);
    bytes
}

#[test]
fn a_value_that_cannot_be_serialized_leaves_nothing_of_its_beginning() {
    #[derive(Serialize, Deserialize)]
    struct Half(u8, #[serde(serialize_with = "fail")] u8);
    fn fail<S: serde::Serializer>(_: &u8, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("as it was asked to"))
    }
    let mut bytes = b"kept".to_vec();
    Postcard(Half(1, 2)).encode(&mut bytes);
    assert_eq!(bytes, b"kept");
}

#[test]
fn a_message_of_one_byte_for_each_level_does_not_overflow_the_stack() {
    let expected = "deeper than 128 levels";
    assert_eq!(why::<Link>(&vec![1; 1 << 20]).why, expected);
    let deep: Vec<u8> = [3, 1].repeat(1 << 19);
    assert_eq!(why::<Shape>(&deep).why, expected);
    // What is not too deep is a value.
    let chain = [vec![1; 60], vec![0]].concat();
    Postcard::<Link>::decode(&chain).unwrap();
}

#[test]
fn a_count_of_values_without_bytes_is_bounded_by_the_message() {
    let count = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    assert_eq!(why::<Vec<()>>(&count).why, "more items than bytes");
    let mut bytes = Vec::new();
    Postcard(vec![(); 1]).encode(&mut bytes);
    assert_eq!(Postcard::<Vec<()>>::decode(&bytes), Ok(Postcard(vec![()])));
}
