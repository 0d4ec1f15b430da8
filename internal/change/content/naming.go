package content

// Naming is what follows how the revision of a pod that has content is called, next to the revisions of its rollout.
type Naming struct {
	// Whole: content is a part of revisions, or may be. The rest matters only where it is not.
	Whole bool
	// Newest is the newest template, Stable the stable revision. That may have content until the newest revision, which
	// has none, is everywhere. Back: the newest has failed, and nodes go to the stable one.
	Newest, Stable string
	Back           bool
}

// Of is how a revision is called. Without content a pod of the newest template is as good as any other of it. Of the
// stable template it has the stable revision: who is given that must be seen to have it, or it is given again and
// again.
func (n *Naming) Of(revision string) string {
	template := TemplateOf(revision)
	switch {
	case n.Whole, n.Back && revision == n.Stable:
		return revision
	case template != n.Newest && template == TemplateOf(n.Stable):
		return n.Stable
	}
	return template
}
