pub(crate) mod process;
pub(crate) mod roles;
pub(crate) mod tracer;
