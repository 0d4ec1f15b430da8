package survey

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// Holdings are what ConfigMaps and Secrets of one namespace hold.
type Holdings struct {
	// Objects are those that somebody has looked for, nil for one that is not there; Unread says why others may not be.
	Objects map[content.Ref]*content.Object
	Unread  map[content.Ref]string
	// Key is that of the hashes of content with Secrets; nil while there is none.
	Key []byte
}

// Needs are what is to be read to know the content of a DaemonSet, as it is or would be.
func (s *Survey) Needs(ds *appsv1.DaemonSet) (out []content.Ref) {
	rules := s.contentRules(ds)
	if rules == nil {
		return nil
	}
	for _, ref := range content.Refs(&ds.Spec.Template.Spec) {
		if rules.Takes(ref) {
			out = append(out, ref)
		}
	}
	if content.Keyed(out) {
		out = append(out, content.KeyRef)
	}
	for _, id := range s.contentsOf(ds) {
		out = append(out, content.Ref{Kind: content.ConfigMap, Name: content.ManifestName(ds.Name, id)})
	}
	return out
}

// contentsOf are the IDs of the contents that a DaemonSet has, by its rollout and its pods.
func (s *Survey) contentsOf(ds *appsv1.DaemonSet) []string {
	var revisions []string
	if r := s.Rollout(ds); r != nil {
		revisions = append(revisions, r.Status.StableRevision, r.Status.TargetRevision)
	}
	for _, pods := range s.byOwner[ds.UID] {
		for _, p := range pods {
			revisions = append(revisions, p.Labels[content.RevisionLabel])
		}
	}
	return content.IDsOf(revisions)
}

// contentRules is what the DaemonSet's policy says of content; nil where that is no part of its revisions.
func (s *Survey) contentRules(ds *appsv1.DaemonSet) *rolloutpolicy.Content {
	policy := s.Policy(ds)
	if policy == nil || policy.Spec.Content == nil {
		return nil
	}
	p, err := rolloutpolicy.Follow(policy, s.Locate)
	if err != nil {
		return nil
	}
	return p.Content
}

// addContent finds the content that the present template has, where the policy wants it to be a part of revisions, or
// did until it went in the middle of a change.
func (s *Set) addContent() {
	st, edited := s.stands(), len(s.survey.Edits[s.DaemonSet.UID]) > 0
	id := content.IDOf(st.TargetRevision)
	if s.byPolicy() {
		s.content = id
		s.look(edited)
	} else if id != "" && s.isTarget() && s.unled() {
		s.content = id
	}
	switch {
	case s.content == "" && !edited:
		return
	case s.works != nil:
		s.content = s.works.ID
	case edited:
		s.content = content.Planned
	}
	s.Revision = content.Revision(s.Revision, s.content)
	whole := []string{s.Revision, st.StableRevision, st.TargetRevision}
	for i := range st.FailedRevisions {
		whole = append(whole, st.FailedRevisions[i].Revision)
	}
	for _, revision := range whole {
		if n := s.Numbers[content.TemplateOf(revision)]; n > 0 {
			s.Numbers[revision] = n
		}
	}
}

// byPolicy reports whether the policy speaks of content.
func (s *Set) byPolicy() bool { return s.Policy != nil && s.Policy.Spec.Content != nil }

// look works out what the objects hold, as far as they were read, and what hinders that it is followed: a limit, or
// what the rollout says, unless that is over with what they hold now.
func (s *Set) look(edited bool) {
	said, rules := "", s.survey.contentRules(s.DaemonSet)
	if c := s.stands().Content; c != nil && rules != nil {
		said = c.Message
	}
	s.hindered = said
	held := s.survey.Holdings[s.DaemonSet.Namespace]
	if held == nil || rules == nil {
		return
	}
	works, unread, err := held.work(s.DaemonSet, rules)
	switch {
	case err != nil:
		s.hindered = err.Error()
	case unread != "":
		if edited || s.content != "" && !s.isTarget() {
			s.unread = unread
		}
	case works == nil: // it needs a key that is not there yet
	default:
		s.works = works
		if content.IsLimit(said) || isOver(said, s.DaemonSet.Name, works) {
			s.hindered = ""
		}
	}
}

// isTarget reports whether the rollout leads to the present template.
func (s *Set) isTarget() bool {
	return content.TemplateOf(s.stands().TargetRevision) == content.TemplateOf(s.Revision)
}

// work returns the content of the DaemonSet's template; nil where it is not known, and what may not be read of it. The
// error says which limit is broken.
func (h *Holdings) work(ds *appsv1.DaemonSet, rules *rolloutpolicy.Content) (c *content.Content, unread string,
	err error) {
	var refs []content.Ref
	for _, ref := range content.Refs(&ds.Spec.Template.Spec) {
		if !rules.Takes(ref) {
			continue
		}
		o, looked := h.Objects[ref]
		switch {
		case !looked:
			unread = ref.String() + " may not be read: " + h.Unread[ref]
		case o == nil || !isApart(o, rules):
			refs = append(refs, ref)
		}
	}
	var key []byte
	if content.Keyed(refs) {
		key = h.Key
		if why := h.Unread[content.KeyRef]; why != "" {
			unread = content.KeyRef.String() + " may not be read: " + why
		}
	}
	is, err := content.Of(key, ds.Name, refs, func(ref content.Ref) ([]byte, error) {
		if o := h.Objects[ref]; o != nil {
			return content.Hash(key, ds.Name, ref, o)
		}
		return nil, nil
	})
	if err != nil || unread != "" || key == nil && content.Keyed(refs) {
		return nil, unread, err
	}
	return &is, "", nil
}

func isApart(o *content.Object, rules *rolloutpolicy.Content) bool {
	return o.NotContent || rules.Excludes(o.Name, o.Labels)
}

// Apart reports whether it is known of an object that the template names that it is no content, as by its labels.
func (s *Set) Apart(ref content.Ref) bool {
	held, rules := s.survey.Holdings[s.DaemonSet.Namespace], s.survey.contentRules(s.DaemonSet)
	return held != nil && rules != nil && held.Objects[ref] != nil && isApart(held.Objects[ref], rules)
}

// isOver reports whether what hindered content is said of a copy, or of a list of copies, of another one than this.
func isOver(said, owner string, is *content.Content) bool {
	kind, rest, _ := strings.Cut(said, " ")
	name, _, _ := strings.Cut(rest, " ")
	if !content.IsID(name[strings.LastIndexByte(name, '-')+1:]) || name == content.ManifestName(owner, is.ID) {
		return false
	}
	return (kind == string(content.ConfigMap) || kind == string(content.Secret)) &&
		!slices.ContainsFunc(is.Members, func(m content.Member) bool { return m.CopyRef().Name == name })
}

// Unread says what may not be read of the content that it is to have; "" if it is known, or as before.
func (s *Set) Unread() string { return s.unread }

// Returns reports whether the content that it is to have is the stable revision's, and another was on its way.
func (s *Set) Returns() bool {
	st := s.stands()
	return s.content != "" && st.TargetRevision != st.StableRevision && content.WithVariants(s.Revision, "") ==
		content.WithVariants(st.StableRevision, "")
}

// Fails reports whether it has failed with its content before.
func (s *Set) Fails() bool {
	return s.content != "" && rolloutpolicy.HasFailed(s.stands(), content.WithVariants(s.Revision, ""))
}

// members are those of a content; false if they are not known.
func (s *Set) members(id string) ([]content.Member, bool) {
	if id == "" {
		return nil, false
	}
	if s.works != nil && s.works.ID == id {
		return s.works.Members, true
	}
	held := s.survey.Holdings[s.DaemonSet.Namespace]
	if held == nil {
		return nil, false
	}
	o := held.Objects[content.Ref{Kind: content.ConfigMap, Name: content.ManifestName(s.DaemonSet.Name, id)}]
	if o == nil {
		return nil, false
	}
	c, err := content.ReadManifest(o.Data)
	return c.Members, err == nil
}

// isGone reports whether there is no list of a content any more.
func (s *Set) isGone(id string) bool {
	held := s.survey.Holdings[s.DaemonSet.Namespace]
	if held == nil {
		return false
	}
	o, looked := held.Objects[content.Ref{Kind: content.ConfigMap, Name: content.ManifestName(s.DaemonSet.Name, id)}]
	return looked && o == nil
}

// edited are the members that the edits are of, where those of a whole content are not known.
func (s *Set) edited() (out []content.Member) {
	for _, e := range s.survey.Edits[s.DaemonSet.UID] {
		out = append(out, content.Member{Ref: e.Ref, Copy: e.Ref.Name + "-" + content.Planned})
	}
	return out
}

// Live are the ways in which running pods can be given other content; nil if they are replaced. Why says what keeps
// them from that which they are to have, though the policy says Live.
func (s *Set) Live() (live *fact.Live, why string) {
	unknown := s.survey.Holdings == nil && len(s.survey.Edits[s.DaemonSet.UID]) == 0
	if !s.byPolicy() || s.content == "" || unknown || s.Policy.Spec.Content.Apply != v1alpha1.ContentLive {
		return nil, ""
	}
	st, has := s.stands(), s.survey.contentsOf(s.DaemonSet)
	ids := []string{s.content, content.IDOf(st.StableRevision), content.IDOf(st.TargetRevision)}
	differs := func(id string) bool { return id != s.content }
	if !slices.ContainsFunc(ids, differs) && !slices.ContainsFunc(has, differs) {
		return nil, ""
	}
	if why = s.noLive(); why != "" {
		return nil, why
	}
	live = &fact.Live{}
	for _, from := range append([]string{""}, has...) {
		for _, to := range ids {
			if from != to && to != "" && s.hinders(from, to) == "" {
				live.Ways = append(live.Ways, [2]string{from, to})
			}
		}
	}
	if ids[1] != s.content {
		why = s.hinders(ids[1], s.content)
	}
	return live, why
}

// noLive says why no running pod can be given any other content; "" if that depends on what it is.
func (s *Set) noLive() string {
	strategy := belongings.StrategyOf(s.DaemonSet)
	switch {
	case s.survey.beside, s.survey.Foreign:
		return contents.NoLive
	case strategy.Surges():
		return contents.BySurge
	case !slices.ContainsFunc(s.survey.Nodes, canFollow):
		return "no agent says that it can show running pods other content"
	}
	return ""
}

// canFollow reports whether a node's agent says that it can show running pods other content.
func canFollow(n *corev1.Node) bool { return n.Labels[content.LiveName] == "true" }

// hinders says what keeps a running pod from going from one content to another; "" for nothing.
func (s *Set) hinders(from, to string) string {
	spec := s.DaemonSet.Spec.Template.Spec.DeepCopy()
	next, known := s.members(to)
	was, had := s.members(from)
	switch {
	case from == "" || had:
		content.Rewrite(spec, was)
	case s.isGone(from):
		return "what the pods have is not known any more"
	default:
		known = false
	}
	if !known {
		next = s.edited()
	}
	if _, err := content.Point(spec, next); err != nil {
		return err.Error()
	}
	return ""
}

// renamed is the target revision, if the present one is called otherwise by the policy alone: it is of other objects,
// and those of both hold the same.
func (s *Set) renamed() string {
	st, held := s.stands(), s.survey.Holdings[s.DaemonSet.Namespace]
	was, known := s.members(content.IDOf(st.TargetRevision))
	if !known || s.works == nil || !s.isTarget() {
		return ""
	}
	before := content.Content{Members: was}
	if slices.Equal(before.Refs(), s.works.Refs()) {
		return ""
	}
	key := held.Key
	if !content.Keyed(before.Refs()) {
		key = nil
	}
	for _, m := range was {
		o := held.Objects[m.Ref]
		if !slices.Contains(s.works.Refs(), m.Ref) {
			continue
		}
		sum, err := []byte(nil), error(nil)
		if o != nil {
			sum, err = content.Hash(key, s.DaemonSet.Name, m.Ref, o)
		}
		if m.Absent != (o == nil) || err != nil || o != nil && !m.Names(sum) {
			return ""
		}
	}
	return st.TargetRevision
}
