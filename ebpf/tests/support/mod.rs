pub(crate) mod lies;
pub(crate) mod process;
pub(crate) mod roles;
pub(crate) mod semaphore;
pub(crate) mod tracer;
