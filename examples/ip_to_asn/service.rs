use std::net::{IpAddr, Ipv6Addr};

use bellwire::{Lookup, Malformed, Message, Service};

/// Which autonomous system announces an address.
pub(crate) struct IpToAsn;

impl Service for IpToAsn {
    const NAME: &'static str = "ip-to-asn";
    const IDEMPOTENT: bool = true;
    type Request = IpAddr;
    type Response = Lookup<Asn>;
}

/// An autonomous system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asn {
    /// Its number.
    pub(crate) number: u32,
    /// Who runs it.
    pub(crate) name: String,
}

impl Message for Asn {
    fn encode(&self, into: &mut Vec<u8>) {
        self.number.encode(into);
        self.name.encode(into);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let no_number = Malformed::new(0, bytes.len(), "no number");
        let (number, name) = bytes.split_at_checked(4).ok_or(no_number)?;
        Ok(Self { number: u32::decode(number)?, name: String::decode(name)? })
    }
}

/// Addresses compare and search as numbers: IPv4 as its mapped IPv6 address.
pub(crate) fn ordinal(address: IpAddr) -> u128 {
    let address: Ipv6Addr = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    address.to_bits()
}
