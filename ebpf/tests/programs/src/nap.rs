/// Sleeps for the requested number of microseconds.
pub(crate) struct Nap;

impl bellwire::Service for Nap {
    const NAME: &'static str = "nap";
    type Request = u64;
    type Response = u64;
}
