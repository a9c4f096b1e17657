use std::error::Error;
use std::net::IpAddr;
use std::path::Path;

use bellwire::Lookup;

use crate::service::{Asn, ordinal};

/// Ranges of addresses, none within another, in their order.
pub(crate) struct Table {
    ranges: Vec<Range>,
}

struct Range {
    first: u128,
    last: u128,
    asn: Asn,
}

impl Table {
    /// Reads lines of `first,last,number,name`.
    pub(crate) fn load(path: &Path) -> Result<Self, Box<dyn Error>> {
        let mut ranges = Vec::new();
        let reader =
            csv::ReaderBuilder::new().has_headers(false).comment(Some(b'#')).from_path(path);
        for row in reader?.deserialize() {
            let (first, last, number, name): (IpAddr, IpAddr, u32, String) = row?;
            let (first, last) = (ordinal(first), ordinal(last));
            if first > last {
                return Err(format!("{name}: the range ends before it begins").into());
            }
            ranges.push(Range { first, last, asn: Asn { number, name } });
        }
        ranges.sort_by_key(|range| range.first);
        for (before, behind) in ranges.iter().zip(ranges.iter().skip(1)) {
            if before.last >= behind.first {
                return Err(format!("{} and {} overlap", before.asn.name, behind.asn.name).into());
            }
        }
        Ok(Self { ranges })
    }

    pub(crate) fn find(&self, address: IpAddr) -> Lookup<Asn> {
        let address = ordinal(address);
        let behind = self.ranges.partition_point(|range| range.first <= address);
        let before = behind.checked_sub(1).and_then(|at| self.ranges.get(at));
        match before.filter(|range| address <= range.last) {
            Some(range) => Lookup::Known(range.asn.clone()),
            None => Lookup::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::unwrap_used, reason = "a test")]
    fn asn(address: &str) -> Option<u32> {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/ip_to_asn/sample.csv");
        let table = Table::load(&sample).unwrap();
        table.find(address.parse().unwrap()).known().map(|asn| asn.number)
    }

    #[test]
    fn each_end_of_a_range_belongs_to_it_and_nothing_beside_it() {
        assert_eq!(asn("192.0.1.255"), None);
        assert_eq!(asn("192.0.2.0"), Some(64496));
        assert_eq!(asn("192.0.2.255"), Some(64496));
        assert_eq!(asn("192.0.3.0"), None);
        assert_eq!(asn("198.51.100.127"), Some(64497));
        assert_eq!(asn("198.51.100.128"), Some(64498));
        assert_eq!(asn("2001:db8::1"), Some(65536));
        assert_eq!(asn("::ffff:192.0.2.7"), Some(64496));
    }
}
