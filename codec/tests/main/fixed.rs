//! Structs of fixed layout, and hostile bytes for each kind of field.

use bellwire_codec::{Layout, Malformed, Message};

#[derive(Message, Clone, Copy, Debug, PartialEq)]
#[repr(u16)]
pub(crate) enum State {
    Idle = 1,
    NotReady = 700,
}

#[derive(Message, Clone, Copy, Debug, PartialEq)]
pub(crate) struct Queue {
    pub(crate) depth: u8,
    pub(crate) limit: Option<u32>,
}

/// Twelve counters, a state, and no tail.
#[derive(Message, Clone, Debug, PartialEq)]
pub(crate) struct Counters {
    pub(crate) is_rotational: bool,
    pub(crate) state: State,
    pub(crate) counters: [u64; 12],
    pub(crate) load: f32,
    pub(crate) queues: [Queue; 2],
    pub(crate) range: (i8, f64),
}

/// Several variable parts, one of them of structs with a variable part.
#[derive(Message, Clone, Debug, PartialEq)]
pub(crate) struct Disk {
    pub(crate) name: String,
    pub(crate) reads: u64,
    pub(crate) serial: Vec<u8>,
    pub(crate) partitions: Vec<Partition>,
    pub(crate) label: Option<String>,
}

#[derive(Message, Clone, Debug, PartialEq)]
pub(crate) struct Partition {
    pub(crate) start: u32,
    pub(crate) name: String,
}

pub(crate) fn counters() -> Counters {
    Counters {
        is_rotational: true,
        state: State::NotReady,
        counters: [u64::MAX, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        load: 0.5,
        queues: [Queue { depth: 3, limit: Some(9) }, Queue { depth: 4, limit: None }],
        range: (-5, 1e300),
    }
}

pub(crate) fn disk() -> Disk {
    let partition = |start, name: &str| Partition { start, name: name.into() };
    Disk {
        name: "sda".into(),
        reads: 7,
        serial: vec![1, 0, 255],
        partitions: vec![partition(1, "esp"), partition(2, ""), partition(3, "Wurzel ü")],
        label: Some("rot".into()),
    }
}

fn encoded(message: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn malformed<T: Message + std::fmt::Debug>(
    bytes: &[u8],
) -> (usize, Option<&'static str>, &'static str) {
    let Malformed { at, len, field, why, .. } = T::decode(bytes).unwrap_err();
    assert_eq!(len, bytes.len());
    (at, field, why)
}

fn changed(mut bytes: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    bytes[at] = byte;
    bytes
}

#[test]
fn a_value_is_decoded_as_it_was_encoded_and_every_shorter_or_longer_message_is_malformed() {
    fn check<T: Message + PartialEq + std::fmt::Debug>(value: &T) {
        let mut bytes = encoded(value);
        assert_eq!(T::decode(&bytes).as_ref(), Ok(value));
        for len in 0..bytes.len() {
            T::decode(&bytes[..len]).unwrap_err();
        }
        bytes.push(0);
        T::decode(&bytes).unwrap_err();
    }
    check(&counters());
    check(&disk());
    check(&(true, -1_i16, "text".to_owned()));
    check(&Some(2.5_f32));
    check(&None::<u64>);
    check(&f64::MIN);
    check(&[State::Idle; 3]);
    let (fixed, varied) = (vec![counters(), counters()], vec![disk(), disk()]);
    assert_eq!(Message::decode(&encoded(&fixed)), Ok(fixed.clone()));
    check(&varied);
    // Values of one length in a list of its own need no count.
    assert_eq!(Some(encoded(&fixed).len()), Counters::LEN.map(|len| 2 * len));
    assert_eq!(malformed::<Vec<u64>>(&[0; 17]), (16, None, "wrong length"));
}

#[test]
fn values_that_no_type_has_are_malformed_with_their_field_and_position() {
    let bytes = encoded(&counters());
    let at = |field| Counters::TYPE.offset(field);
    let why = "neither 0 nor 1";
    assert_eq!(
        malformed::<Counters>(&changed(bytes.clone(), 0, 7)),
        (0, Some("Counters.is_rotational"), why)
    );
    let second_limit = at(4) + Queue::TYPE.size() + Queue::TYPE.offset(1);
    let two = changed(bytes.clone(), second_limit, 2);
    assert_eq!(malformed::<Counters>(&two), (second_limit, Some("Queue.limit"), why));
    let state = changed(bytes, at(1), 99);
    assert_eq!(
        malformed::<Counters>(&state),
        (at(1), Some("Counters.state"), "not a value of State")
    );
    let message = Counters::decode(&state).unwrap_err().to_string();
    assert_eq!(message, "malformed message at byte 2 of 152, Counters.state: not a value of State");

    let bytes = encoded(&disk());
    let text = Disk::TYPE.size();
    let not_utf8 = changed(bytes.clone(), text + 1, 0xff);
    assert_eq!(malformed::<Disk>(&not_utf8), (text + 1, Some("Disk.name"), "not UTF-8"));
    let past = "a length past the end of the message";
    let long = changed(bytes.clone(), 3, 0xff);
    assert_eq!(malformed::<Disk>(&long), (0, Some("Disk.name"), past));
    let count = Disk::TYPE.offset(3);
    let many = changed(bytes, count + 3, 0x80);
    assert_eq!(malformed::<Disk>(&many), (count, Some("Disk.partitions"), past));
}

#[test]
fn padding_is_zeroed_and_never_read() {
    let mut bytes = vec![0xaa; Counters::LEN.unwrap()];
    counters().write(&mut bytes);
    assert_eq!(bytes, encoded(&counters()));
    assert_eq!(bytes[1], 0, "between a bool and a u16");
    // Padding is not read.
    assert_eq!(Counters::decode(&changed(bytes, 1, 0xaa)), Ok(counters()));
}

#[test]
fn a_fingerprint_is_the_hash_of_the_text_of_both_types() {
    use bellwire::{Service, schema};

    #[derive(bellwire::Service)]
    #[service(name = "disks", version = 3, request = Counters, response = Vec<Disk>)]
    struct Disks;

    let text = "{is_rotational:bool,state:u16{idle=1,not_ready=700},counters:[u64;12],load:f32,\
                queues:[{depth:u8,limit:?u32};2],range:{0:i8,1:f64}} -> \
                [{name:str,reads:u64,serial:[u8],partitions:[{start:u32,name:str}],label:?str}]";
    assert_eq!(format!("{} -> {}", Counters::TYPE, <Vec<Disk>>::TYPE), text);
    assert_eq!(Disks::SCHEMA, schema(text));
    assert_eq!((Disks::VERSION, Disks::IDEMPOTENT), (3, false));

    #[derive(Message)]
    #[repr(i64)]
    enum Signed {
        Low = i64::MIN,
        None = 0,
    }
    #[derive(bellwire::Service)]
    #[service(name = "signed", request = Signed)]
    struct OfSigned;
    assert_eq!(OfSigned::SCHEMA, schema("i64{low=-9223372036854775808,none=0} -> {}"));
    assert_eq!(Signed::None.encode_len(), (Signed::Low.encode_len()));
}

trait EncodeLen: Message {
    fn encode_len(&self) -> usize {
        encoded(self).len()
    }
}

impl<T: Message> EncodeLen for T {}
