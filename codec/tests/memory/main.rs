#![allow(unsafe_code, reason = "an allocator is counted")]
#![allow(clippy::unwrap_used, reason = "all of this is a test")]
//! How much memory decoding a message takes at most, in a program of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::any::type_name;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use bellwire_codec::{Message, Postcard};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The system's allocator. Each thread counts what it has allocated now, and the most since [`most`] asked.
struct Counting;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on to the system's allocator as it is. `realloc` is the default one, by the other two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        NOW.set(NOW.get() + layout.size());
        MOST.set(MOST.get().max(NOW.get()));
        // SAFETY: the caller upholds the contract of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // Another thread may have allocated it.
        NOW.set(NOW.get().saturating_sub(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What it takes to decode the bytes at most, and whether that succeeds.
fn most<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> (usize, Result<(), String>) {
    let before = NOW.get();
    MOST.set(before);
    let decoded = Postcard::<T>::decode(bytes);
    let most = MOST.get() - before;
    (most, decoded.map(drop).map_err(|malformed| malformed.why.to_owned()))
}

const LEN: usize = 64 << 10;
const LIMIT: usize = (1 << 20) + 64 * LEN;

fn is_refused<T: Serialize + DeserializeOwned>(count: usize, rest: &[u8]) {
    let (most, decoded) = most::<T>(&message(count, rest));
    println!("{most} bytes for {}", type_name::<T>());
    let why = decoded.unwrap_err();
    assert_eq!(why, "more memory than 1 MiB and 64 bytes for each byte", "{}", type_name::<T>());
    assert!(most <= 3 * LIMIT, "{most} bytes for {}", type_name::<T>());
}

/// A count, and what repeats `rest` until there are [`LEN`] bytes.
fn message(count: usize, rest: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    Postcard(count).encode(&mut message);
    message.extend(rest.iter().cycle().take(LEN - message.len()));
    message
}

type Large = [[u64; 32]; 16];

#[allow(clippy::large_enum_variant, reason = "that is what a peer would use")]
#[derive(Serialize, Deserialize)]
enum Either {
    Small,
    Large(Large),
}

#[derive(Serialize, Deserialize)]
struct Nested(Vec<Self>, Option<Box<Either>>);

#[derive(Serialize, Deserialize)]
struct Named(HashMap<u32, Self>);

#[test]
fn decoding_allocates_no_more_than_a_multiple_of_the_message() {
    // A byte or two for each item, 4 KiB in memory.
    is_refused::<Vec<Option<Large>>>(LEN - 3, &[0]);
    is_refused::<Vec<Either>>(LEN - 3, &[0]);
    is_refused::<Vec<(Either, ())>>(LEN - 3, &[0]);
    // In memory of its own.
    is_refused::<Vec<Option<Box<Either>>>>(LEN / 2 - 2, &[1, 0]);
    is_refused::<Vec<Vec<Either>>>(LEN / 2 - 2, &[1, 0]);
    is_refused::<Vec<Nested>>(LEN / 3 - 2, &[0, 1, 0]);
    // Maps make room for several entries.
    is_refused::<Vec<BTreeMap<u8, Either>>>(LEN / 3 - 2, &[1, 7, 0]);
    is_refused::<Vec<HashMap<u8, Either>>>(LEN / 3 - 2, &[1, 7, 0]);
    // Keys that differ.
    let mut keys = Vec::new();
    for key in 0..LEN / 4 {
        Postcard(key).encode(&mut keys);
        keys.push(0);
    }
    is_refused::<BTreeMap<u32, Either>>(LEN / 4 - 2, &keys);
    is_refused::<HashMap<u32, Either>>(LEN / 4 - 2, &keys);
}

/// A collection makes room for the items that are announced, before there is one.
#[test]
fn announced_items_that_are_missing_allocate_no_more_either() {
    // As many levels as are allowed, each of which announces items for 1 MiB.
    let mut count = Vec::new();
    Postcard(LEN - 1000).encode(&mut count);
    is_refused::<Nested>(LEN - 1000, &count);
    is_refused::<Named>(LEN - 1000, &count);
}

#[test]
fn a_value_as_large_as_its_message_is_decoded() {
    fn is_decoded<T: Serialize + DeserializeOwned>(value: T) {
        let mut bytes = Vec::new();
        Postcard(value).encode(&mut bytes);
        let (most, decoded) = most::<T>(&bytes);
        decoded.unwrap();
        println!("{most} bytes of {} for {}", bytes.len(), type_name::<T>());
    }
    is_decoded(vec![0_u128; 1 << 20]);
    is_decoded(vec![String::new(); 1 << 20]);
    is_decoded(vec![[None::<String>, None, None]; 1 << 18]);
    is_decoded((0..1 << 18).map(|key| (key, Vec::<u8>::new())).collect::<BTreeMap<u32, _>>());
    is_decoded((0..1 << 18).map(|key| (key, [0_u64; 4])).collect::<HashMap<u32, _>>());
    // However few bytes.
    is_decoded((0..200).map(|_| None::<Large>).collect::<Vec<_>>());
}
