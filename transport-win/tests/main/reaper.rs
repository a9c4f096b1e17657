use std::io::Read;
use std::os::windows::io::OwnedHandle;

use bellwire_win::reaper;

#[test]
fn reaped_handles_are_closed() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    reaper::reap(OwnedHandle::from(writer));
    // The pipe ends when its last writer is closed.
    assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0);
}
