//! [interprocess](https://docs.rs/interprocess): its local sockets, whose bytes are framed as those of the other streams.

use ::interprocess::TryClone;
use ::interprocess::local_socket::traits::{Listener as _, Stream as _};
use ::interprocess::local_socket::{GenericNamespaced, ListenerOptions, Name, ToNsName};
use ::interprocess::os::unix::uds_local_socket::{Listener, Stream};

use super::ContenderInfo;
use super::streams::{Ends, Wire};
use crate::Outcome;
use crate::load::Case;

/// Its local sockets.
pub(super) struct Interprocess;

impl Wire for Interprocess {
    const NAME: &'static str = "interprocess";
    type From = Stream;
    type To = Stream;

    const SETTINGS: &'static str = "local sockets in the namespace (abstract Unix sockets); both ends block, default \
                                    buffers, a thread for each connection";

    fn about() -> ContenderInfo {
        ContenderInfo::new("2.4", Self::SETTINGS)
    }

    fn listen(case: &Case) -> Outcome<impl FnMut() -> Outcome<Ends<Self>> + Send + 'static> {
        let listener = ListenerOptions::new().name(name(case)?).create_sync_as::<Listener>()?;
        Ok(move || both(listener.accept()?))
    }

    fn connect(case: &Case) -> Outcome<Ends<Self>> {
        both(Stream::connect(name(case)?)?)
    }
}

fn name(case: &Case) -> Outcome<Name<'static>> {
    Ok(case.name().to_ns_name::<GenericNamespaced>()?)
}

fn both(stream: Stream) -> Outcome<(Stream, Stream)> {
    Ok((stream.try_clone()?, stream))
}
