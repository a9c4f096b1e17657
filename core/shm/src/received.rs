/// A received control message. Handles that are not taken out go to the reaper on drop, since the peer may have sent anything.
#[derive(Debug)]
pub struct Received<H> {
    /// The length in bytes. The message is at the start of the buffer.
    pub len: usize,
    objects: Objects<H>,
}

/// The descriptors or handles of a message, in order. Those that are not taken out go to the reaper on drop.
#[derive(Debug)]
pub struct Objects<H> {
    handles: std::vec::IntoIter<H>,
    reap: fn(H),
}

impl<H> Received<H> {
    /// Creates a message of `len` bytes whose handles are given to `reap` unless somebody takes them.
    pub fn new(len: usize, handles: Vec<H>, reap: fn(H)) -> Self {
        Self { len, objects: Objects { handles: handles.into_iter(), reap } }
    }

    /// Returns how many handles came.
    pub fn count(&self) -> usize {
        self.objects.handles.len()
    }

    /// Returns all handles. The caller should send those that it takes but does not verify to the reaper, too.
    pub fn into_objects(self) -> Objects<H> {
        self.objects
    }
}

impl<H> Iterator for Objects<H> {
    type Item = H;

    fn next(&mut self) -> Option<H> {
        self.handles.next()
    }
}

impl<H> Drop for Objects<H> {
    fn drop(&mut self) {
        self.handles.by_ref().for_each(self.reap);
    }
}
