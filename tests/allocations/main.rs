#![allow(unsafe_code, reason = "an allocator is counted")]
#![allow(clippy::unwrap_used, reason = "all of this is a test")]
//! How often memory is allocated for a call and for a batch, in all threads of this process: a program of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bellwire::{Client, RunDir, Server, ServerBuilder, ServerConfig, Service};
use bellwire_core::sync::{AtomicU64, Ordering};

/// The system's allocator, counted.
struct Counting(AtomicU64);

#[global_allocator]
static ALLOCATOR: Counting = Counting(AtomicU64::new(0));

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.0.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Held by each test: all of them count in the same place.
static ALONE: Mutex<()> = Mutex::new(());

struct Double;

impl Service for Double {
    const NAME: &'static str = "double";
    type Request = u64;
    type Response = u64;
}

/// How often memory is allocated at both ends for a batch of so many items, in a steady state: the least of some tries,
/// since other threads of the process may allocate for themselves.
fn allocations(client: &mut Client<Double>, items: u64) -> u64 {
    let requests: Vec<u64> = (0..items).collect();
    let session = client.connect().unwrap();
    let once = || {
        let before = ALLOCATOR.0.load(Ordering::SeqCst);
        let answers = session.call_batch(&requests).unwrap();
        assert!(answers.map(Result::unwrap).eq(requests.iter().map(|number| number * 2)));
        ALLOCATOR.0.load(Ordering::SeqCst) - before
    };
    std::iter::repeat_with(once).take(20).min().unwrap()
}

fn measure(serve: impl FnOnce(&mut ServerBuilder), workers: usize) -> [u64; 3] {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let config = ServerConfig::default().workers(workers);
    let mut builder = Server::builder_with_config(&run_dir, config);
    serve(&mut builder);
    let server = builder.start().unwrap();
    let mut client = Client::<Double>::new(&run_dir);
    // The largest first: buffers have their size then.
    let counts = [5000, 500, 5].map(|items| allocations(&mut client, items));
    drop(client);
    server.stop();
    counts
}

/// A server that doubles, and its client.
fn fixture() -> (tempfile::TempDir, Server, Client<Double>) {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let mut builder = Server::builder(&run_dir);
    builder.serve::<Double>(|_, number| Ok(number * 2)).unwrap();
    let server = builder.start().unwrap();
    let client = Client::new(&run_dir);
    (dir, server, client)
}

#[test]
fn no_hot_call_allocates_at_either_end() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (_dir, server, mut client) = fixture();
    let session = client.connect().unwrap();
    let mut hundred_calls = || {
        let before = ALLOCATOR.0.load(Ordering::SeqCst);
        for number in 0..100 {
            assert_eq!(session.call(&number).unwrap(), number * 2);
        }
        ALLOCATOR.0.load(Ordering::SeqCst) - before
    };
    let counts: Vec<u64> = (0..20).map(|_| hundred_calls()).collect();
    println!("in 100 calls each: {counts:?}");
    assert_eq!(counts.into_iter().min(), Some(0));
    drop(client);
    server.stop();
}

#[test]
fn no_batch_in_flight_allocates_at_either_end() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (_dir, server, mut client) = fixture();
    let session = client.connect().unwrap();
    let requests: Vec<u64> = (0..300).collect();
    let mut answers = Vec::new();
    let mut three_batches = || {
        let before = ALLOCATOR.0.load(Ordering::SeqCst);
        for _ in 0..3 {
            session.submit_batch(&requests).unwrap();
        }
        for _ in 0..3 {
            let (_, replies) = session.wait_batch(Duration::from_secs(60)).unwrap();
            answers.clear();
            replies.unwrap().append_to(&mut answers).unwrap();
            assert!(answers.iter().copied().eq(requests.iter().map(|number| number * 2)));
        }
        ALLOCATOR.0.load(Ordering::SeqCst) - before
    };
    let counts: Vec<u64> = (0..20).map(|_| three_batches()).collect();
    println!("in 3 batches each: {counts:?}");
    assert_eq!(counts.into_iter().min(), Some(0));
    drop(client);
    server.stop();
}

#[test]
fn no_item_of_a_batch_allocates_at_either_end() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for workers in [0, 1] {
        let by_item = measure(
            |builder| {
                builder.serve::<Double>(|_, number| Ok(number * 2)).unwrap();
            },
            workers,
        );
        let whole = measure(
            |builder| {
                let handler = |numbers: &[u64], answers: &mut bellwire::BatchAnswers<'_, u64>| {
                    numbers.iter().for_each(|number| answers.push(&(number * 2)));
                };
                builder
                    .serve_batches::<Double>(move |_, numbers, answers| handler(numbers, answers))
                    .unwrap();
            },
            workers,
        );
        println!(
            "{workers} workers, 5000, 500 and 5 items: {by_item:?} one by one, {whole:?} whole"
        );
        if workers == 0 {
            assert_eq!(by_item, [0; 3], "one by one");
            assert_eq!(whole, [1; 3], "all requests stand in one vector");
        } else {
            // Each worker's answer has buffers of its own, which grow to their size.
            let most = by_item.into_iter().chain(whole).max();
            assert!(most < Some(40), "of 5000 items none allocates");
        }
    }
}
