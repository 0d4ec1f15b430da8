package variants

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// variantsOf and without name the parts of a revision.
func variantsOf(revision string) string { return content.VariantsOf(revision) }

func without(revision string) string { return content.WithVariants(revision, "") }

// Step takes an event for the matrix in, and passes it on.
func (b *Book) Step(e matrix.Event) {
	switch e := e.(type) {
	case fact.DaemonSet:
		s := b.set(e.UID)
		s.info = &e
		if b.dirty[e.UID] && s.object != nil {
			b.find(e.UID, s) // so that nothing is told first that is not so
		}
		b.tell(e.UID, s)
	case fact.Rollout:
		s := b.set(e.UID)
		if !s.followed {
			b.dirty[e.UID], s.version, b.moved = true, 0, true
			s.unfound = s.unfound || b.Guest // without a policy it was told as if it had none
		}
		s.status, s.followed = e.Status, true
		b.rows.Step(e)
	case fact.RolloutGone:
		if s := b.sets[types.UID(e)]; s != nil {
			b.moved = b.moved || s.followed
			s.status, s.followed, s.version = nil, false, 0
			b.dirty[types.UID(e)] = true
		}
		b.rows.Step(e)
	case fact.Pod:
		b.onPod(e)
	case fact.PodGone:
		kept := b.drop(types.UID(e))
		b.moved = b.moved || kept
		b.rows.Step(e)
	default:
		b.rows.Step(e)
	}
}

// onPod passes a pod on, with the revision that it is as good as.
func (b *Book) onPod(e fact.Pod) {
	s := b.sets[e.Owner]
	if e.Owner == "" || (s == nil || s.pods == nil) && !b.isMarked(e.UID) {
		b.drop(e.UID)
		b.rows.Step(e)
		return
	}
	s = b.set(e.Owner)
	b.concern(e.Owner, s)
	b.moved = b.moved || !s.pods[e.Node][e.UID] || IsScaled(b.Objects.Pod(e.UID))
	b.drop(e.UID)
	if s.pods[e.Node] == nil {
		s.pods[e.Node] = map[types.UID]bool{}
	}
	s.pods[e.Node][e.UID] = true
	e.Revision = b.as(e.Owner, s, &e)
	b.rows.Step(e)
}

// isMarked is IsMarked of a pod that may not be known.
func (b *Book) isMarked(uid types.UID) bool {
	p := b.Objects.Pod(uid)
	return p != nil && IsMarked(p)
}

// IsMarked reports whether a pod was made by a variant, or was given amounts by one in a resize that ended half way.
func IsMarked(p *corev1.Pod) bool {
	return variant.MarkOf(&p.ObjectMeta).Variant != "" || halfWay(p)
}

// drop forgets a pod. It returns true for one that was kept.
func (b *Book) drop(uid types.UID) bool {
	info, known := b.rows.Pod(uid)
	if s := b.sets[info.Owner]; known && s != nil && s.pods[info.Node][uid] {
		delete(s.pods[info.Node], uid)
		delete(s.called, uid)
		if len(s.pods[info.Node]) == 0 {
			delete(s.pods, info.Node)
		}
		return true
	}
	return false
}

// concern has the pods of a DaemonSet be kept by node from now on.
func (b *Book) concern(uid types.UID, s *set) {
	if s.pods != nil {
		return
	}
	s.pods, s.names = map[string]map[types.UID]bool{}, map[string]bool{}
	for _, pod := range b.rows.Pods() {
		info, known := b.rows.Pod(pod)
		if !known || info.Owner != uid {
			continue
		}
		if s.pods[info.Node] == nil {
			s.pods[info.Node] = map[types.UID]bool{}
		}
		s.pods[info.Node][pod] = true
	}
}

// lookAll passes all pods of a DaemonSet on again whose revision is called otherwise now.
func (b *Book) lookAll(uid types.UID, s *set) {
	s.names = map[string]bool{}
	for node := range s.pods {
		b.look(uid, s, node)
	}
}

// look does that for the pods of one node.
func (b *Book) look(uid types.UID, s *set, node string) {
	for pod := range s.pods[node] {
		info, known := b.rows.Pod(pod)
		if !known {
			continue
		}
		was := info.Revision
		info.Revision = cmp.Or(s.called[pod], was)
		if as := b.as(uid, s, &info); as != was {
			info.Revision = as
			b.rows.Step(info)
		}
	}
	b.moved = true
}

// aim is what a rollout aims at.
type aim struct {
	stable, target string
	back           bool
}

// aimOf is what the rollout aims at, or did when that was stored.
func (b *Book) aimOf(uid types.UID) aim {
	st, known := b.rows.Rollout(uid)
	if !known {
		s := b.sets[uid]
		if s == nil || s.status == nil {
			return aim{}
		}
		st = *s.status
	}
	back := slices.ContainsFunc(st.FailedRevisions, func(f v1alpha1.FailedRevision) bool {
		return f.Revision == st.TargetRevision && f.Action == v1alpha1.FailureRollback
	})
	return aim{st.StableRevision, st.TargetRevision, back} // also while it is paused, or without a policy
}

// aimMoved reports whether the rollout aims at something else than when pods were last looked at.
func (b *Book) aimMoved(uid types.UID, s *set) bool {
	is := b.aimOf(uid)
	moved := s.seen != is
	s.seen = is
	return moved
}

// wanted are the revisions that pods may be as good as, the one that counts first, and which of them is stable.
func (b *Book) wanted(uid types.UID, s *set) (all []string, stable string) {
	is, newest := b.aimOf(uid), ""
	if s.told != nil {
		newest = s.told.Revision
	}
	if is.back {
		return []string{is.stable, is.target}, is.stable
	}
	return []string{newest, is.target, is.stable}, is.stable
}

// as is how the matrix calls the revision of a pod, and keeps that.
func (b *Book) as(uid types.UID, s *set, info *fact.Pod) string {
	base := without(info.Revision)
	if base == "" {
		return info.Revision
	}
	out := b.fitting(uid, s, info, base)
	s.names[out] = true
	delete(s.called, info.UID)
	if content.IDOf(out) != content.IDOf(base) {
		if s.called == nil {
			s.called = map[types.UID]string{}
		}
		s.called[info.UID] = base
	}
	return out
}

// fitting is one that is wanted, if the pod would be the same by it. Else it is the one that the pod was made of,
// unless the pod is not any more what that says.
func (b *Book) fitting(uid types.UID, s *set, info *fact.Pod, base string) string {
	p, mark := b.Objects.Pod(info.UID), variant.Mark{}
	if p != nil {
		mark = variant.MarkOf(&p.ObjectMeta)
	}
	own := b.ownOf(p, base)
	out := own
	wanted, stable := b.wanted(uid, s)
	if _, is := impossible(p); is && !b.keeps(uid, s, wanted[0], info.Node) {
		out, wanted = content.WithVariants(base, content.Infeasible), nil
	}
	for _, revision := range wanted {
		if !b.mayHave(p, own, base, revision, stable) {
			continue
		}
		same := variantsOf(revision) == variantsOf(own)
		fits, sure := b.fits(uid, s, revision, info.Node, p, &mark)
		if !sure {
			fits = same
		}
		if revision == wanted[0] && halfWay(p) {
			fits = false // it was on its way to another one
		}
		if fits {
			out = revision
			break
		}
		if same {
			out = content.WithVariants(base, content.Drifted)
		}
	}
	return out
}

// ownOf is the revision that a pod was made of. Beside another controller a label of another template than the pod's is
// not admission's: the template's author wrote it.
func (b *Book) ownOf(p *corev1.Pod, base string) string {
	if p == nil {
		return base
	}
	label := p.Labels[content.RevisionLabel]
	if b.Guest && content.TemplateOf(label) != content.TemplateOf(base) {
		return base
	}
	return content.WithVariants(base, variantsOf(label))
}

// mayHave reports whether a pod may be as good as a revision. One that another controller made of a new template, while
// nobody was asked about it, has none with variants: its node may not be due.
func (b *Book) mayHave(p *corev1.Pod, own, base, revision, stable string) bool {
	switch {
	case revision == "", without(revision) != base && (revision != stable || !madeOf(p, base, revision)):
		return false
	case b.Guest && own == base && revision != own && stable != "":
		return base == without(stable)
	}
	return true
}

// madeOf reports whether a pod has the content of a revision, though content is no part of what its own is called. Who
// is given that revision must be seen to have it, or it is given again and again.
func madeOf(p *corev1.Pod, base, revision string) bool {
	return p != nil && base == content.TemplateOf(revision) &&
		content.IDOf(p.Labels[content.RevisionLabel]) == content.IDOf(revision)
}

// keeps reports whether the node keeps the pod that it has, since its variant of the revision cannot be had there.
func (b *Book) keeps(uid types.UID, s *set, revision, node string) bool {
	o, err := b.Outcome(uid, revision, node)
	return err == nil && o != nil && (o.Err != nil || len(o.Tied) > 0)
}

// fits reports whether a pod with the mark would be the same by the revision; not sure where that cannot be known. What
// formulas give is not followed where a VerticalPodAutoscaler gives the pod amounts.
func (b *Book) fits(uid types.UID, s *set, revision, node string, p *corev1.Pod, mark *variant.Mark) (fits, sure bool) {
	scaled := IsScaled(p)
	if variantsOf(revision) == "" {
		return mark.Variant == "" || scaled && mark.Effect == "", true
	}
	n, m := b.nodes[node], b.moldsOf(uid, s, revision)
	if n == nil || m == nil {
		return false, false
	}
	o := m.Of(n)
	if scaled {
		return o.FitsScaled(mark), true
	}
	return o.Fits(mark), true
}

// moldsOf are the pods of a revision by its variants; nil if that is not known.
func (b *Book) moldsOf(uid types.UID, s *set, revision string) *variant.Molds {
	k := s.known[variantsOf(revision)]
	if k == nil {
		return nil
	}
	key := content.TemplateOf(revision) + " " + k.ID
	m := s.molds[key]
	if m == nil {
		template := b.Objects.Template(uid, content.TemplateOf(revision))
		if template == nil {
			return nil
		}
		m = k.On(template)
		if s.molds == nil || len(s.molds) > maxMolds {
			s.molds = map[string]*variant.Molds{}
		}
		s.molds[key] = m
	}
	return m
}

// maxMolds is how many templates with variants are kept worked out.
const maxMolds = 8

// tell passes a DaemonSet on, with its variants.
func (b *Book) tell(uid types.UID, s *set) {
	if s.info == nil {
		return
	}
	info := *s.info
	var is *variant.Set
	switch {
	case s.refused == "" && s.newest == nil:
		s.unfound = false
	case s.settled && s.newest != nil && s.known[s.newest.ID].stored != nil && b.may(uid, s, &info):
		is, s.unfound = s.newest, false
	default: // those it had, until the new ones are stored; it is held where nobody knows any
		is = b.had(uid, s)
		info.Held = info.Held || s.unfound
	}
	id, digest := "", ""
	if is != nil {
		id, digest = is.ID, is.Digest
	}
	info.Revision = content.WithVariants(info.Revision, id)
	info.Digest = s.digestOf(&info, digest)
	info.Earlier = b.earlier(uid, s, info.Earlier)
	was := s.told
	s.told = &info
	if !info.Held {
		s.given = info.Revision
	}
	if s.pods != nil && (was == nil || was.Revision != info.Revision) {
		b.lookAll(uid, s) // first: what has the newest already is no evidence against it
	}
	b.rows.Step(info)
}

// digestOf is the digest of the revision with its variants. One that is the whole one, as it was stored, stays: of its
// content nothing has been read yet.
func (s *set) digestOf(info *fact.DaemonSet, variants string) string {
	if st := s.status; st != nil && st.TargetRevision == info.Revision && st.TargetDigest == info.Digest {
		return info.Digest
	}
	return contentsDigest(info.Digest, variants)
}

// earlier are the rules of earlier revisions, where the stable one cannot be given: nobody knows its variants.
func (b *Book) earlier(uid types.UID, s *set, earlier *placement.Revisions) *placement.Revisions {
	stable := b.aimOf(uid).stable
	if of := variantsOf(stable); of == "" || s.known[of] != nil || earlier == nil {
		return earlier
	}
	return &placement.Revisions{ByRevision: earlier.ByRevision, Gone: stable}
}

// had are the variants that the DaemonSet was told with; of one that was not, those of its rollout's target, or of most
// of its pods. Its pods may be by variants that are not known, or it is new: then it is unfound.
func (b *Book) had(uid types.UID, s *set) *variant.Set {
	if s.told != nil && !s.unfound {
		if k := s.known[variantsOf(s.told.Revision)]; k != nil {
			return k.Set
		}
		return nil
	}
	revision, found := b.aimOf(uid).target, false
	if revision == "" {
		revision = s.found(b.Objects)
	}
	k := s.known[variantsOf(revision)]
	found = revision != "" && (variantsOf(revision) == "" || k != nil && k.stored != nil)
	s.unfound = !found
	if !found || k == nil {
		return nil
	}
	return k.Set
}

// found is the revision that nodes were given last, as a controller finds their pods that has just begun: the newest if
// one was made by it, for then it may be given, and else that of most of them; "" where there is none.
func (s *set) found(in Objects) (best string) {
	by := map[string]int{}
	for _, pods := range s.pods {
		for uid := range pods {
			if p := in.Pod(uid); p != nil {
				revision := cmp.Or(p.Labels[content.RevisionLabel], p.Labels[appsv1.ControllerRevisionHashLabelKey])
				if s.newest != nil && variantsOf(revision) == s.newest.ID &&
					content.TemplateOf(revision) == content.TemplateOf(s.info.Revision) {
					return revision
				}
				by[revision]++
			}
		}
	}
	for revision, n := range by {
		if n > by[best] || n == by[best] && revision < best {
			best = revision
		}
	}
	return best
}

// Pod returns what was last told about a pod.
func (b *Book) Pod(uid types.UID) (fact.Pod, bool) {
	info, known := b.rows.Pod(uid)
	if s := b.sets[info.Owner]; s != nil && s.pods != nil {
		info.Revision = without(info.Revision)
	}
	return info, known
}

// Rollout is where the rollout of a DaemonSet stands, in revisions without variants.
func (b *Book) Rollout(uid types.UID) (v1alpha1.DaemonSetRolloutStatus, bool) {
	st, known := b.rows.Rollout(uid)
	if s := b.sets[uid]; s != nil && s.concerned() {
		st.StableRevision, st.TargetRevision = without(st.StableRevision), without(st.TargetRevision)
	}
	return st, known
}

// PodsOfRevision returns how many pods the DaemonSet owns that are of a revision, with whatever variants.
func (b *Book) PodsOfRevision(uid types.UID, revision string) int {
	s := b.sets[uid]
	if s == nil || s.pods == nil {
		return b.rows.PodsOfRevision(uid, revision)
	}
	n := 0
	s.names[revision] = true
	for name := range s.names {
		if without(name) == revision {
			n += b.rows.PodsOfRevision(uid, name)
		}
	}
	return n
}

// Makes are the revisions of which pods may still have to be made, with whatever variants.
func (b *Book) Makes(uid types.UID) (out []string) {
	for _, revision := range b.makes(uid) {
		out = append(out, without(revision))
	}
	return out
}

// makes are the same by their full names.
func (b *Book) makes(uid types.UID) []string {
	is := b.aimOf(uid)
	return append(b.rows.Makes(uid), is.stable, is.target)
}
