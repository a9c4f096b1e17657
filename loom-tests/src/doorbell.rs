use bellwire_core::sync::{AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex};

/// How an end sleeps, and so how its peer rings it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// `futex_waitv(2)` on the words waited for.
    Futex,
    /// An edge of an eventfd.
    Eventfd,
}

/// The kernel's part of one end's sleep: its futex queue, or its eventfd.
pub struct Doorbells {
    kind: Sleep,
    kernel: Mutex<Kernel>,
    woken: Condvar,
}

#[derive(Default)]
struct Kernel {
    /// The words that the sleeper waits for; empty while no thread sleeps.
    waits_for: Vec<usize>,
    /// How often the eventfd was written.
    rings: u64,
    /// The count of rings that the waiter has seen the edge of.
    seen: u64,
}

impl Doorbells {
    /// An end that sleeps like this.
    pub fn new(kind: Sleep) -> Self {
        Self { kind, kernel: Mutex::new(Kernel::default()), woken: Condvar::new() }
    }

    /// Sleeps until rung. With a futex, only while each word's low half is still the value given, and until
    /// one of these words is rung.
    pub fn sleep(&self, words: &[(&AtomicU64, u64)]) {
        let mut kernel = self.kernel.lock().unwrap();
        if self.kind == Sleep::Eventfd {
            while kernel.rings == kernel.seen {
                kernel = self.woken.wait(kernel).unwrap();
            }
            kernel.seen = kernel.rings;
            return;
        }
        if words.iter().any(|(word, seen)| low(word.load(Ordering::Relaxed)) != low(*seen)) {
            return;
        }
        kernel.waits_for = words.iter().map(|(word, _)| address(word)).collect();
        while !kernel.waits_for.is_empty() {
            kernel = self.woken.wait(kernel).unwrap();
        }
    }

    /// Rings for a word that moved: wakes the futex's sleeper if it waits for that word, or writes the eventfd.
    pub fn ring(&self, word: &AtomicU64) {
        let mut kernel = self.kernel.lock().unwrap();
        kernel.rings += 1;
        let wakes = match self.kind {
            Sleep::Futex => kernel.waits_for.contains(&address(word)),
            Sleep::Eventfd => true,
        };
        if wakes {
            kernel.waits_for.clear();
            self.woken.notify_one();
        }
    }
}

fn low(value: u64) -> u64 {
    value & 0xffff_ffff
}

fn address(word: &AtomicU64) -> usize {
    std::ptr::from_ref(word).addr()
}
