//! A provider publishes a delta from each generation to the next: its readers copy and check only that.

use bellwire::{Publisher, Refreshed, Server, Snapshot, SnapshotCache};
use bellwire_core::sync::{AtomicBool, AtomicU64, Ordering};

use crate::support::child::Process;
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::services::{Numbers, OutOfOrder};
use crate::support::test_server::{Dir, client_config};

/// A list of words, of which a delta has the new values. `N` makes services of it that do not share their counts.
#[derive(Debug)]
struct Words<const N: usize>;

/// The words, and whether the last step to them was a delta.
#[derive(Debug)]
struct Index {
    words: Vec<u64>,
    was_delta: bool,
}

/// Whether readers refuse deltas, each kind of list by itself.
static REFUSES: [AtomicBool; 6] = [const { AtomicBool::new(false) }; 6];
/// How many deltas were applied or refused, by publishers too.
static DELTAS: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];

impl<const N: usize> Snapshot for Words<N> {
    const NAME: &'static str = "words";
    type Index = Index;
    type Error = OutOfOrder;

    fn validate(bytes: &[u8]) -> Result<Index, OutOfOrder> {
        if bytes.len() % 8 > 0 {
            return Err(OutOfOrder { item: bytes.len() / 8, offset: bytes.len() / 8 * 8 });
        }
        Ok(Index { words: words(bytes).collect(), was_delta: false })
    }

    const PUBLISHES_DELTAS: bool = true;

    fn delta(index: &Index, bytes: &[u8]) -> Option<Vec<u8>> {
        let next = Self::validate(bytes).ok()?;
        if next.words.len() != index.words.len() {
            return None;
        }
        let pairs = (0_u64..).zip(next.words.iter().zip(&index.words));
        let changed = pairs.filter(|(_, (new, old))| new != old);
        Some(changed.flat_map(|(at, (new, _))| [at, *new]).flat_map(u64::to_le_bytes).collect())
    }

    fn apply_delta(index: &mut Index, delta: &[u8]) -> bool {
        DELTAS[N].fetch_add(1, Ordering::SeqCst);
        if REFUSES[N].load(Ordering::SeqCst) {
            return false;
        }
        let mut changed = words(delta);
        while let (Some(at), Some(word)) = (changed.next(), changed.next()) {
            index.words[at as usize] = word;
        }
        index.was_delta = true;
        true
    }

    fn to_bytes(index: &Index) -> Vec<u8> {
        index.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()))
}

struct Fixture<const N: usize> {
    dir: Dir,
    publisher: Publisher<Words<N>>,
    server: Server,
    words: Vec<u64>,
}

impl<const N: usize> Fixture<N> {
    fn new(len: usize) -> Self {
        let mut fixture = Self::in_dir(Dir::new(), len);
        fixture.publish(0);
        fixture
    }

    fn in_dir(dir: Dir, len: usize) -> Self {
        let mut builder = Server::builder(&dir.run_dir);
        let publisher = builder.publish::<Words<N>>().unwrap();
        let server = builder.start().unwrap();
        Self { dir, publisher, server, words: vec![7; len] }
    }

    /// Publishes a generation in which one word is another.
    fn publish(&mut self, word: u64) -> u64 {
        let at = word as usize % self.words.len();
        self.words[at] += 1 + word;
        self.publisher.publish(&self.bytes()).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A reader that has the newest generation.
    fn reader(&self) -> SnapshotCache<Words<N>> {
        let mut cache = SnapshotCache::with_config(&self.dir.run_dir, client_config());
        self.takes(&mut cache, false);
        cache
    }

    /// Has a reader take the newest generation, and asserts how it did.
    #[track_caller]
    fn takes(&self, cache: &mut SnapshotCache<Words<N>>, is_delta: bool) {
        assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
        let current = cache.current().unwrap();
        assert_eq!(current.generation(), self.publisher.generation());
        assert_eq!(current.index().was_delta, is_delta);
        assert_eq!(current.index().words, self.words);
        assert!(current.bytes() == self.bytes());
        assert_eq!(cache.refresh().unwrap(), Refreshed::Unchanged);
    }
}

/// Above this many words a snapshot is not in the ring.
const IN_RING: usize = (256 << 10) / 8;

#[test]
fn a_reader_that_keeps_up_receives_deltas() {
    for len in [40, IN_RING + 1] {
        let mut fixture = Fixture::<0>::new(len);
        let mut cache = fixture.reader();
        for word in 1..40 {
            fixture.publish(word);
            fixture.takes(&mut cache, true);
        }
        drop(cache);
        let stats = fixture.server.stop();
        let long = u64::from(len > IN_RING);
        assert_eq!((stats.lost, stats.attaches_sent), (0, 1 + long), "the ring, and a long one");
    }
}

#[test]
fn a_reader_that_is_some_generations_behind_follows_all_and_one_far_behind_takes_the_whole() {
    for (len, far) in [(40, 5_000), (IN_RING + 1, 30)] {
        let mut fixture = Fixture::<1>::new(len);
        let mut cache = fixture.reader();
        for (behind, is_delta) in
            [(2, true), (16, true), (17, false), (1, true), (far, false), (3, true)]
        {
            for word in 0..behind {
                fixture.publish(word);
            }
            fixture.takes(&mut cache, is_delta);
        }
    }
}

#[test]
fn a_reader_that_refuses_a_delta_takes_the_whole_snapshot() {
    let mut fixture = Fixture::<2>::new(40);
    let mut cache = fixture.reader();
    let before = DELTAS[2].load(Ordering::SeqCst);
    fixture.publish(1);
    REFUSES[2].store(true, Ordering::SeqCst);
    fixture.takes(&mut cache, false);
    assert_eq!(DELTAS[2].load(Ordering::SeqCst), before + 2, "the publisher, the reader");
    REFUSES[2].store(false, Ordering::SeqCst);
    fixture.publish(2);
    fixture.takes(&mut cache, true);
}

#[test]
fn a_generation_without_a_delta_is_taken_as_a_whole() {
    let mut fixture = Fixture::<3>::new(40);
    let mut cache = fixture.reader();
    for len in [41, 4, 90_000, 40] {
        // All of it is new.
        fixture.words = (0..len).collect();
        fixture.publish(0);
        fixture.takes(&mut cache, false);
        fixture.publish(1);
        fixture.takes(&mut cache, true);
    }
    // No publisher sends a delta to a malformed one, nor to the next one.
    fixture.publisher.publish(&[1, 2, 3]).unwrap();
    assert!(cache.refresh_within(TEST_TIMEOUT).is_err());
    fixture.publish(1);
    fixture.takes(&mut cache, false);
    fixture.publish(2);
    fixture.takes(&mut cache, true);
}

#[test]
fn deltas_of_a_successor_are_not_applied_to_the_predecessors_snapshot() {
    let mut fixture = Fixture::<4>::new(40);
    let mut cache = fixture.reader();
    fixture.publish(1);
    fixture.takes(&mut cache, true);
    let Fixture { dir, server, .. } = fixture;
    server.stop();
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Unavailable);
    // Its third generation is what the reader would get next.
    let mut fixture = Fixture::<4>::in_dir(dir, 40);
    for word in 0..3 {
        fixture.publish(word);
    }
    until("it finds the successor", || {
        cache.refresh_within(TEST_TIMEOUT).unwrap() == Refreshed::Changed
    });
    let current = cache.current().unwrap();
    assert!(!current.index().was_delta && current.bytes() == fixture.bytes());
    fixture.publish(9);
    fixture.takes(&mut cache, true);
}

/// The numbers of a provider that publishes no deltas, to a reader that would apply them.
#[derive(Debug)]
struct FollowedNumbers;

impl Snapshot for FollowedNumbers {
    const NAME: &'static str = Numbers::NAME;
    type Index = <Numbers as Snapshot>::Index;
    type Error = <Numbers as Snapshot>::Error;
    const PUBLISHES_DELTAS: bool = true;

    fn validate(bytes: &[u8]) -> Result<Self::Index, Self::Error> {
        Numbers::validate(bytes)
    }
}

#[test]
fn a_provider_that_was_killed_has_changed_nothing() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    server.ask("publish 1 10");
    let mut cache = SnapshotCache::<FollowedNumbers>::with_config(&dir.run_dir, client_config());
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    server.kill();
    until("it notices", || {
        let found = cache.refresh().unwrap();
        assert!(matches!(found, Refreshed::Unchanged | Refreshed::Unavailable), "{found:?}");
        found == Refreshed::Unavailable
    });
}
