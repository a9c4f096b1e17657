use std::fs;
use std::io;
use std::time::Duration;

use crate::Usage;

/// Returns what the process has used, from [`/proc/PID/task/TID/schedstat`, `stat` and
/// `status`](https://man7.org/linux/man-pages/man5/proc.5.html).
///
/// # Errors
/// There is no such process, or the kernel does not keep these statistics.
pub fn usage(pid: u32) -> io::Result<Usage> {
    let mut usage = Usage::default();
    for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file));
        let ran = number(read("schedstat")?.split(' ').next());
        usage.cpu += Duration::from_nanos(ran);
        for line in read("status")?.lines() {
            if line.contains("voluntary_ctxt_switches:") {
                usage.switches += number(line.split_whitespace().nth(1));
            }
        }
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    usage.rss = number(rss.and_then(|line| line.split_whitespace().next())) << 10;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // After the name, which may contain anything: state is the third field, utime the fourteenth.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
    let (user, kernel) = (number(fields.next()), number(fields.next()));
    let share = (kernel * 1000).checked_div(user + kernel).unwrap_or(0);
    usage.kernel = u32::try_from(share).unwrap_or(1000);
    Ok(usage)
}

fn number(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}
