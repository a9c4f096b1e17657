//! Any snapshot, any change of one, and any bytes.

use super::*;

fn any_labels() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec(("[a-c€]{1,2}", "[x/é]{0,3}"), 0..4)
}

prop_compose! {
    fn any_items()(rows in prop::collection::btree_map(
        "(/[a-z.é][a-z0-9_\\\\é-]{2,12}){1,3}",
        (1..u64::MAX, "[a-e€ ]{1,3}", 0u32..=0x1ff, any::<bool>(), 0u8..10, any_labels()),
        0..20,
    )) -> Vec<CgroupEntry> {
        let mut items: Vec<_> = rows
            .into_iter()
            .map(|(path, (id, name, options, enabled, orchestrator, labels))| CgroupEntry {
                id,
                name,
                path,
                options: Options::from_bits(options).unwrap(),
                enabled,
                orchestrator: Orchestrator::from_code(orchestrator).unwrap(),
                labels,
            })
            .collect();
        items.sort_by_key(|item| item.id);
        items.dedup_by_key(|item| item.id);
        items
    }
}

/// Returns some of `old`, changed or not, and some of `new`.
fn mixed(old: &[CgroupEntry], new: &[CgroupEntry], mix: &[u8]) -> Vec<CgroupEntry> {
    let mut items = Vec::new();
    let mut mix = mix.iter().cycle();
    for item in old {
        let mut item = item.clone();
        match mix.next().unwrap() {
            0 => continue,
            1 => item.id ^= 1 << 40,
            2 => item.name = "a".into(),
            3 => item.name.push('é'),
            4 => item.path.push('x'),
            5 => item.options = Options::NESTED,
            6 => item.enabled = !item.enabled,
            7 => item.orchestrator = Orchestrator::Lxc,
            8 => item.labels.push(("é".into(), "".into())),
            9 => item.labels.clear(),
            _ => {}
        }
        items.push(item);
    }
    items.extend(new.iter().filter(|_| *mix.next().unwrap() == 0).cloned());
    items.sort_by(|a, b| a.path.cmp(&b.path));
    items.dedup_by(|a, b| a.path == b.path);
    items.sort_by_key(|item| item.id);
    items.dedup_by_key(|item| item.id);
    items
}

proptest! {
    #[test]
    fn any_items_round_trip(mut items in any_items(), nanos: u64, skipped: u32) {
        let scanned_at = UNIX_EPOCH + Duration::from_nanos(nanos);
        let meta = Meta { scanned_at, mode: Mode::V1, skipped };
        let bytes = encode(&items, meta).unwrap();
        prop_assert_eq!(bytes.len(), encoded_len(&items));
        let index = Index::validate(&bytes).unwrap();
        assert_consistent(index.view());
        prop_assert_eq!(index.view().meta(), meta);
        items.sort_by(|a, b| a.path.cmp(&b.path));
        let found: Vec<CgroupEntry> = index.view().iter().map(CgroupEntry::from).collect();
        prop_assert_eq!(found, items);
    }

    #[test]
    fn a_truncated_snapshot_is_refused(items in any_items(), at: prop::sample::Index) {
        let bytes = encode(&items, META).unwrap();
        let at = at.index(bytes.len());
        prop_assert!(Index::validate(&bytes[..at]).is_err());
    }

    #[test]
    fn any_bytes_after_a_good_header_are_refused_or_sound(
        items in any_items(), noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = encode(&items, META).unwrap();
        let len = bytes.len();
        for (at, value) in noise {
            bytes[at.index(len)] = value;
        }
        match Index::validate(&bytes) {
            Ok(index) => assert_consistent(index.view()),
            Err(fault) => prop_assert!(fault.offset <= len),
        }
    }

    #[test]
    fn an_index_that_is_updated_is_that_of_the_new_snapshot(
        old in any_items(), new in any_items(), mix in prop::collection::vec(0_u8..14, 60),
    ) {
        let mut index = Index::validate(&encode(&old, META).unwrap()).unwrap();
        let mut items = old;
        // Twice, so that an updated index is updated again.
        for mix in mix.chunks(30) {
            items = mixed(&items, &new, mix);
            let bytes = encode(&items, META).unwrap();
            let delta = index.delta(&bytes);
            let mut other = index.clone();
            index.update(&bytes).unwrap();
            let whole = Index::validate(&bytes).unwrap();
            assert_same(&index, &whole);
            if let Some(delta) = delta {
                prop_assert!(other.apply_delta(&delta));
                prop_assert!(other.to_bytes() == bytes);
                assert_same(&other, &whole);
                index = other;
            }
        }
    }

    #[test]
    fn any_delta_is_refused_or_leads_to_a_valid_snapshot(
        old in any_items(), new in any_items(), mix in prop::collection::vec(0_u8..40, 30),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut index = Index::validate(&encode(&old, META).unwrap()).unwrap();
        let before = index.clone();
        let Some(mut delta) = index.delta(&encode(&mixed(&old, &new, &mix), META).unwrap()) else {
            return Ok(());
        };
        let len = delta.len();
        for (at, value) in noise {
            delta[at.index(len)] = value;
        }
        if index.apply_delta(&delta) {
            assert_same(&index, &Index::validate(&index.to_bytes()).unwrap());
        } else {
            assert_same(&index, &before);
        }
    }

    #[test]
    fn an_update_finds_the_faults_of_a_full_validation_and_keeps_the_old_index(
        items in any_items(), noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode(&items, META).unwrap();
        let old = Index::validate(&bytes).unwrap();
        let mut index = old.clone();
        let len = bytes.len();
        for (at, value) in noise {
            bytes[at.index(len)] = value;
        }
        match (index.update(&bytes), Index::validate(&bytes)) {
            (Ok(()), Ok(whole)) => assert_same(&index, &whole),
            (Err(fault), Err(whole)) => {
                prop_assert_eq!(fault, whole);
                assert_same(&index, &old);
            }
            (updated, whole) => prop_assert!(false, "{updated:?}, and as a whole {whole:?}"),
        }
    }
}
