//! The notes, in a program and in a shared library, with link-time optimization and stripped.

use crate::built::PROFILES;
use crate::elf::{self, Note};

/// Every probe, and how many arguments `docs/tracing.md` promises: six at most, since bpftrace takes no more.
const PROMISED: [(&str, usize); 23] = [
    ("call_failed", 3),
    ("copied", 6),
    ("handled", 5),
    ("handling", 4),
    ("lane_full", 2),
    ("lane_resized", 4),
    ("mapped", 6),
    ("message", 6),
    ("missed", 3),
    ("park_begin", 2),
    ("park_end", 3),
    ("published", 5),
    ("rate_5000", 1),
    ("rate_50000", 1),
    ("rate_all", 1),
    ("reply", 6),
    ("ring", 2),
    ("session_closed", 2),
    ("session_opened", 1),
    ("slow_100us", 5),
    ("slow_10ms", 5),
    ("slow_10us", 5),
    ("slow_1ms", 5),
];

fn each(check: impl Fn(&[Note], &[u8], &str)) {
    for profile in PROFILES {
        for path in [profile.program(), profile.library()] {
            let (notes, bytes) = elf::read(&path);
            check(&notes, &bytes, &path.display().to_string());
        }
    }
}

#[test]
fn every_probe_exists_once_with_its_arguments() {
    each(|notes, _, path| {
        let mut found: Vec<_> =
            notes.iter().map(|n| (n.name.as_str(), n.arguments.len())).collect();
        found.sort_unstable();
        assert_eq!(found, PROMISED, "{path}");
        assert!(notes.iter().all(|note| note.provider == "bellwire"), "{path}");
    });
}

#[test]
fn an_argument_is_eight_bytes_in_a_register() {
    each(|notes, _, path| {
        for note in notes {
            for argument in &note.arguments {
                let register = argument.strip_prefix("8@").unwrap_or_default();
                let named = if cfg!(target_arch = "x86_64") {
                    register.starts_with("%r")
                } else {
                    register.starts_with('x')
                };
                assert!(named, "{path}: {} has {argument}", note.name);
            }
        }
    });
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_probe_is_a_nop_of_one_byte() {
    each(|notes, bytes, path| {
        for note in notes {
            let at = usize::try_from(note.nop).unwrap();
            // 0f 1f 44 00 00, the nop of five bytes, is what a kernel replaces by a call.
            assert_eq!(bytes[at], 0x90, "{path}: {}", note.name);
        }
    });
}

#[test]
fn semaphores_have_a_page_to_themselves() {
    each(|notes, bytes, path| {
        let first = notes.iter().map(|note| note.semaphore).min().unwrap();
        assert_eq!(first % 4096, 0, "{path}: the first is at {first:#x} in the file");
        for note in notes {
            assert_eq!(note.maps, 1, "{path}: {} is mapped by two segments", note.name);
            assert_eq!(note.semaphore_address % 2, 0, "{path}: {} is not aligned", note.name);
            assert!(note.semaphore - first < 4096, "{path}: {} is on another page", note.name);
        }
        let page = usize::try_from(first).unwrap();
        assert_eq!(bytes[page..page + 4096], [0; 4096], "{path}: the page holds something else");
    });
}

#[test]
fn samples_and_deliveries_share_a_semaphore_each_and_no_other_probes_do() {
    each(|notes, _, path| {
        let mut words: Vec<_> = notes.iter().map(|note| note.semaphore).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), notes.len() - 5, "{path}");
        let of = |name| notes.iter().find(|note| note.name == name).unwrap().semaphore;
        for name in ["reply", "handling", "handled"] {
            assert_eq!(of("message"), of(name), "{path}");
        }
        for name in ["copied", "mapped"] {
            assert_eq!(of("published"), of(name), "{path}");
        }
    });
}
