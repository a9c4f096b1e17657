//! The struct of the generated header is the message.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use bellwire_codec::{Layout, Message, c_header};

use crate::fixed::{Counters, Disk, counters, disk};

const PROGRAM: &str = r#"
#include "disks.h"
#include <stdio.h>
#include <string.h>

/* Reads a message and writes it again, with what it understood changed. */
int main(int argc, char **argv) {
    static unsigned char bytes[4096];
    size_t len = fread(bytes, 1, sizeof bytes, stdin);
    if (argc > 1 && strcmp(argv[1], "counters") == 0) {
        struct counters counters;
        if (len != sizeof counters) return 2;
        memcpy(&counters, bytes, sizeof counters);
        if (!counters.is_rotational || counters.state != STATE_NOT_READY) return 3;
        if (!counters.queues[0].limit.is_some || counters.queues[1].limit.is_some) return 4;
        counters.state = STATE_IDLE;
        counters.counters[0] -= 1;
        counters.load *= 2;
        counters.queues[0].limit.value += 1;
        counters.range.f0 = 5;
        counters.range.f1 /= 2;
        memcpy(bytes, &counters, sizeof counters);
    } else {
        struct disk disk;
        memcpy(&disk, bytes, sizeof disk);
        const unsigned char *name = bytes + sizeof disk;
        if (disk.name_len != 3 || memcmp(name, "sda", 3) != 0 || disk.serial_count != 3) return 5;
        struct partition third;
        memcpy(&third, name + 3 + 3 + 2 * sizeof third, sizeof third);
        if (disk.partitions_count != 3 || third.start != 3) return 6;
        disk.reads += 1;
        memcpy(bytes, &disk, sizeof disk);
        bytes[sizeof disk + 2] = 'b';
    }
    fwrite(bytes, 1, len, stdout);
    return 0;
}
"#;

/// What `examples/disk_stats.rs` sends.
mod disk_stats {
    #[derive(bellwire_codec::Message)]
    #[allow(dead_code, reason = "only its layout is looked at")]
    pub(super) struct Disk {
        name: String,
        reads: u64,
        writes: u64,
    }
}

#[test]
fn the_header_of_the_example_in_c_is_the_generated_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/languages/disk_stats.h");
    let header = c_header("DISK_STATS_H", &[disk_stats::Disk::TYPE]);
    if std::env::var_os("BELLWIRE_BLESS").is_some() {
        fs::write(path, &header).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), header, "BELLWIRE_BLESS=1 writes it");
    // And its fingerprint is what the examples say.
    assert_eq!(disk_stats::Disk::TYPE.to_string(), "{name:str,reads:u64,writes:u64}");
}

#[test]
fn a_program_in_c_reads_and_writes_the_same_structs() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("disks.h"), c_header("DISKS_H", &[Counters::TYPE, Disk::TYPE])).unwrap();
    fs::write(path("program.c"), PROGRAM).unwrap();
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([path("program"), path("program.c")])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let through = |argument: &str, message: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        message(&mut bytes);
        let (piped, program) = (Stdio::piped, path("program"));
        let mut child =
            Command::new(program).arg(argument).stdin(piped()).stdout(piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{argument}: {}", output.status);
        output.stdout
    };

    let mut expected = counters();
    let answer = through("counters", &|bytes| counters().encode(bytes));
    expected.state = crate::fixed::State::Idle;
    expected.counters[0] -= 1;
    expected.load = 1.0;
    expected.queues[0].limit = Some(10);
    expected.range = (5, 5e299);
    assert_eq!(Counters::decode(&answer), Ok(expected));

    let answer = through("disk", &|bytes| disk().encode(bytes));
    assert_eq!(Disk::decode(&answer), Ok(Disk { name: "sdb".into(), reads: 8, ..disk() }));
}
