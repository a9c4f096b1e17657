use bellwire_cgroups::{Cgroup, Orchestrator, View};

/// Which cgroups to print.
#[derive(Debug)]
pub(super) struct Selection {
    text: Option<String>,
    run_by: Vec<Orchestrator>,
}

impl Selection {
    pub(super) fn new(text: Option<&str>, run_by: &[Orchestrator]) -> Self {
        Self { text: text.map(str::to_owned), run_by: run_by.to_vec() }
    }

    pub(super) fn of<'a>(&self, view: View<'a>) -> impl Iterator<Item = Cgroup<'a>> {
        view.iter().filter(|cgroup| self.has(cgroup))
    }

    fn has(&self, cgroup: &Cgroup<'_>) -> bool {
        let named = |text: &String| cgroup.name.contains(text) || cgroup.path.contains(text);
        let run_by = self.run_by.contains(&cgroup.orchestrator);
        self.text.as_ref().is_none_or(named) && (self.run_by.is_empty() || run_by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellwire_cgroups::{Index, Meta, Mode, encode, synthetic};

    #[test]
    fn text_and_orchestrator_both_have_to_fit() {
        let bytes = encode(&synthetic::entries(200, 1), Meta::now(Mode::V2)).unwrap();
        let index = Index::validate(&bytes).unwrap();
        let count =
            |text, run_by: &[Orchestrator]| Selection::new(text, run_by).of(index.view()).count();
        let (docker, k8s) = (Orchestrator::Docker, Orchestrator::K8s);
        assert_eq!(count(None, &[]), 200);
        assert!(count(None, &[docker]) > 0);
        assert_eq!(count(None, &[docker]) + count(None, &[k8s]), count(None, &[docker, k8s]));
        assert_eq!(count(Some("kubepods"), &[docker]), 0);
        assert_eq!(count(Some("kubepods"), &[]), count(None, &[k8s]));
    }
}
