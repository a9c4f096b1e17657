use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Options, Orchestrator};
use crate::fields::{Fields, count, cut, put_labels};
use bellwire::{Lookup, Malformed, Message, Service};

/// The service `cgroups-lookup`: describes a cgroup by its path. Ask for many together with
/// [`Session::call_batch`](bellwire::Session::call_batch).
///
/// Use this for a few cgroups, and [`CgroupsSnapshot`](super::CgroupsSnapshot) for all of them.
#[derive(Clone, Copy, Debug)]
pub struct CgroupsLookup;

impl Service for CgroupsLookup {
    const NAME: &'static str = "cgroups-lookup";
    const VERSION: u32 = 1;
    const IDEMPOTENT: bool = true;
    /// An absolute path below the hierarchy's root, as in [`Cgroup::path`](super::Cgroup::path).
    type Request = String;
    type Response = Lookup<CgroupDetails>;

    #[cfg(feature = "netipc")]
    fn netipc() -> Option<bellwire::netipc::CallMethod> {
        Some(crate::netipc::LOOKUP)
    }
}

/// A cgroup's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupDetails {
    /// See [`Cgroup::id`](super::Cgroup::id).
    pub id: u64,
    /// See [`Cgroup::name`](super::Cgroup::name).
    pub name: String,
    /// See [`Cgroup::options`](super::Cgroup::options).
    pub options: Options,
    /// See [`Cgroup::enabled`](super::Cgroup::enabled).
    pub enabled: bool,
    /// See [`Cgroup::orchestrator`](super::Cgroup::orchestrator).
    pub orchestrator: Orchestrator,
    /// Further properties by name: derived from its path, such as `unit`, `container_id` and `pod_uid`, then those of the source of
    /// its name. In the provider's order; a name may occur more than once.
    pub labels: Vec<(String, String)>,
}

/// The fixed part; the name follows, then the labels.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    id: U64,
    options: U32,
    enabled: u8,
    orchestrator: u8,
    name_len: U16,
    labels: U16,
    zero: [u8; 6],
}

impl Message for CgroupDetails {
    /// Encodes the details. Texts longer than 65 535 bytes are cut, and labels after the first 65 535 are left out; a cgroup
    /// has neither.
    fn encode(&self, into: &mut Vec<u8>) {
        let (name, name_len) = cut(&self.name);
        let head = Head {
            id: self.id.into(),
            options: self.options.bits().into(),
            enabled: self.enabled.into(),
            orchestrator: self.orchestrator.code(),
            name_len: name_len.into(),
            labels: count(&self.labels).into(),
            zero: [0; 6],
        };
        into.extend_from_slice(head.as_bytes());
        into.extend_from_slice(name.as_bytes());
        put_labels(&self.labels, into);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::of(bytes);
        let head: Head = fields.head()?;
        if head.zero != [0; 6] || head.enabled > 1 {
            return Err(fields.malformed("a byte that is neither 0 nor 1, or not 0"));
        }
        let options = Options::from_bits(head.options.get());
        let options = options.ok_or(fields.malformed("unknown options"))?;
        let name = fields.text(head.name_len.get().into())?;
        let labels = fields.labels(head.labels.get())?;
        fields.end()?;
        Ok(Self {
            id: head.id.get(),
            name,
            options,
            enabled: head.enabled == 1,
            orchestrator: Orchestrator::from_code(head.orchestrator).unwrap_or_default(),
            labels,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details() -> CgroupDetails {
        CgroupDetails {
            id: 77,
            name: "nginx".into(),
            options: Options::SECONDARY,
            enabled: true,
            orchestrator: Orchestrator::Docker,
            labels: vec![
                ("unit".into(), "a.scope".into()),
                ("container_id".into(), "c0ffee".into()),
            ],
        }
    }

    #[test]
    fn a_cgroup_round_trips_and_truncated_bytes_are_malformed() {
        let mut good = Vec::new();
        details().encode(&mut good);
        assert_eq!(CgroupDetails::decode(&good), Ok(details()));
        for len in 0..good.len() {
            CgroupDetails::decode(&good[..len]).unwrap_err();
        }
        CgroupDetails::decode(&[&good[..], b"x"].concat()).unwrap_err();
    }

    #[test]
    fn invalid_bytes_are_malformed() {
        let mut good = Vec::new();
        details().encode(&mut good);
        for (at, byte) in [(12, 2), (18, 1), (23, 1), (24, 7), (16, 9)] {
            let mut bad = good.clone();
            bad[at] = byte;
            CgroupDetails::decode(&bad).unwrap_err();
        }
    }
}
