package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
)

// Change is what a ConfigMap or a Secret holds, and what it is to hold. Old is nil for a new one.
type Change struct {
	Namespace string
	Old, New  *content.Object
	// Unread tells that nobody knows what it holds.
	Unread bool
}

// Refused says why the API would not take the change; "" if it would.
func (c *Change) Refused() string {
	if c.Old == nil || !c.Old.Immutable || len(content.Keys(c.Old, c.New)) == 0 {
		return ""
	}
	return fmt.Sprintf("the server would refuse %s, which is immutable: what it holds stays as it is", c.New.Ref)
}

// Applied is an object after "kubectl apply" of next: keys and labels that were not applied before stay, whoever wrote
// them. Have is nil where there is none yet; last is the annotation in which kubectl keeps what it applied. The error
// says that this cannot be read.
func Applied(have, next *content.Object, last string) (*content.Object, error) {
	if have == nil {
		return next, nil
	}
	var before struct {
		Data, BinaryData, StringData map[string]any
		Metadata                     struct{ Labels map[string]any }
	}
	if last != "" {
		err := json.Unmarshal([]byte(last), &before)
		if err != nil {
			return nil, fmt.Errorf("read what was applied last of %s: %w", have.Ref, err)
		}
	}
	was := before.Data
	if was == nil {
		was = map[string]any{}
	}
	maps.Copy(was, before.BinaryData)
	maps.Copy(was, before.StringData)
	// A key is text or binary.
	for key := range next.Data {
		was[key] = nil
	}
	for key := range next.Binary {
		was[key] = nil
	}
	out := *next
	out.Data, out.Binary = merged(have.Data, next.Data, was), merged(have.Binary, next.Binary, was)
	out.Labels = merged(have.Labels, next.Labels, before.Metadata.Labels)
	return &out, nil
}

// merged is what there is but for what was, with what is wanted.
func merged[V any](have, want map[string]V, was map[string]any) map[string]V {
	out := map[string]V{}
	for key, value := range have {
		if _, is := was[key]; !is {
			out[key] = value
		}
	}
	maps.Copy(out, want)
	return out
}

// edits are the keys that change.
func (c *Change) edits() []content.Edit {
	if c.Unread {
		return []content.Edit{{Ref: c.New.Ref, Key: "(any)", From: "(not read)", To: "(as the file says)"}}
	}
	return content.Edits(c.Old, c.New)
}

// Contents finds whose revisions the changes are a part of, key by key, and whose revisions content becomes a part of
// by other policies than before. DaemonSets of s are as they would be. Direct says whom a change reaches past all
// steps: pods that read such an object itself, and not a copy.
func Contents(before, s *survey.Survey, changes []Change) (edits map[types.UID][]content.Edit, direct []string) {
	edits = turned(before, s)
	for _, c := range changes {
		keys := c.edits()
		if len(keys) == 0 {
			continue
		}
		for _, ds := range s.DaemonSets {
			if ds.Namespace != c.Namespace {
				continue
			}
			why := apart(s, ds, c.New)
			if why == "" && refersTo(ds, c.New.Ref) {
				edits[ds.UID] = append(edits[ds.UID], keys...)
			}
			old := before.DaemonSet(ds.Namespace, ds.Name)
			reach := reaches(s, ds, c.New.Ref, why, old != nil && refersTo(old, c.New.Ref))
			if reach != "" {
				direct = append(direct, fmt.Sprintf("%s is read by DaemonSet %s/%s: %s", c.New.Ref, ds.Namespace, ds.Name, reach))
			}
		}
	}
	return edits, direct
}

// reaches says whom the change of an object reaches past all steps, and when; "" for nobody. Why tells why the object
// is no part of revisions, "" if it is; named that the template has named it before.
func reaches(s *survey.Survey, ds *appsv1.DaemonSet, ref content.Ref, why string, named bool) string {
	switch r := s.Readers(ds, ref); {
	case r.All() == 0 && (why == "" || !named):
		return ""
	case r.All() == 0:
		return why + ", and none of its pods reads it directly, so its change reaches a node with the next pod that does"
	case why == "":
		return fmt.Sprintf("directly by %s of %s pods, which its change reaches %s", survey.Number(r.All()),
			survey.Number(r.Pods), when(r))
	case r.All() == r.Pods:
		return why + ", so its change reaches all nodes " + when(r)
	default:
		return fmt.Sprintf("%s, so its change reaches %s of %s pods %s, and other nodes with the next pod that reads it "+
			"directly", why, survey.Number(r.All()), survey.Number(r.Pods), when(r))
	}
}

// when says when a change reaches those who read the object itself.
func when(r survey.Readers) string {
	const starts = "when a container that reads it starts again"
	switch {
	case r.AtStart == 0:
		return "at once"
	case r.AtOnce == 0:
		return "only " + starts
	}
	return fmt.Sprintf("at once, but for %s of these, which it reaches %s", survey.Number(r.AtStart), starts)
}

// refersTo reports whether the template of a DaemonSet names the object.
func refersTo(ds *appsv1.DaemonSet, ref content.Ref) bool {
	return slices.Contains(content.Refs(&ds.Spec.Template.Spec), ref)
}

// turned finds whose revisions content becomes a part of by the policies of after, which are others than those of
// before: what these DaemonSets read directly, and are to read copies of.
func turned(before, after *survey.Survey) map[types.UID][]content.Edit {
	out := map[types.UID][]content.Edit{}
	for _, ds := range after.DaemonSets {
		wanted := takes(after, ds)
		if wanted == nil || takes(before, ds) != nil || reads(after, ds) {
			continue
		}
		for _, ref := range wanted {
			out[ds.UID] = append(out[ds.UID], content.Edit{Ref: ref, From: "read directly", To: "read from a copy"})
		}
	}
	return out
}

// reads reports whether a DaemonSet has copies of content, or its pods have kept some: that counts then.
func reads(s *survey.Survey, ds *appsv1.DaemonSet) bool {
	r := s.Rollout(ds)
	return r != nil && content.IDOf(r.Status.TargetRevision) != "" || slices.ContainsFunc(s.Objects.Pods,
		func(p *corev1.Pod) bool {
			return metav1.IsControlledBy(p, ds) && content.IDOf(p.Labels[content.RevisionLabel]) != ""
		})
}

// policyOf is the policy that a DaemonSet follows; nil for none. With OnDelete it follows none.
func policyOf(s *survey.Survey, ds *appsv1.DaemonSet) *v1alpha1.RolloutPolicy {
	if belongings.StrategyOf(ds).OnDelete {
		return nil
	}
	return s.Policy(ds)
}

// takes returns what a DaemonSet names that is a part of its revisions by its policy.
func takes(s *survey.Survey, ds *appsv1.DaemonSet) (out []content.Ref) {
	policy := policyOf(s, ds)
	if policy == nil {
		return nil
	}
	p, err := rolloutpolicy.Follow(policy, s.Locate)
	if err != nil || p.Content == nil {
		return nil
	}
	for _, ref := range content.Refs(&ds.Spec.Template.Spec) {
		if p.Content.Takes(ref) {
			out = append(out, ref)
		}
	}
	return out
}

// apart says why the object is no part of the DaemonSet's revisions; "" if it is.
func apart(s *survey.Survey, ds *appsv1.DaemonSet, o *content.Object) string {
	policy := policyOf(s, ds)
	if policy == nil {
		return "it follows no policy"
	}
	p, err := rolloutpolicy.Follow(policy, s.Locate)
	switch {
	case err != nil:
		return "its policy cannot be followed"
	case p.Content == nil,
		o.Kind == content.ConfigMap && !p.Content.ConfigMaps, o.Kind == content.Secret && !p.Content.Secrets:
		return fmt.Sprintf("%ss are not part of its revisions", o.Kind)
	case o.NotContent, p.Content.Excludes(o.Name, o.Labels):
		return "its policy excludes it"
	}
	rollout := s.Rollout(ds)
	if rollout == nil || content.IDOf(rollout.Status.TargetRevision) == "" {
		return "its rollout has no content yet"
	}
	return ""
}

// addEdits adds keys that change to the fields; live: running pods are given them.
func (p *planner) addEdits(edits []content.Edit, set *survey.Set, live bool) {
	stays := set.Returns() || set.Fails()
	for _, e := range edits {
		if e.Key == "" && set.Apart(e.Ref) {
			continue
		}
		path := e.Ref.String()
		if e.Key != "" { // else content becomes a part of revisions
			path += ", key " + e.Key
		}
		p.out.Fields = append(p.out.Fields, Field{
			Path: path, From: brief(e.From), To: brief(e.To), ReplacesPods: !live && !stays, RunningPods: live && !stays,
		})
	}
	switch {
	case len(edits) == 0 || p.out.To != p.out.From:
	case set.Returns():
		p.out.To = p.out.From + ", with the content that is stable"
	case edits[0].Key == "":
		p.out.To = p.out.From + ", with content"
	default:
		p.out.To = p.out.From + ", with other content"
	}
}

// brief is the beginning of a value, in one line.
func brief(value string) string {
	const most = 60
	line := strings.ToValidUTF8(strings.ReplaceAll(value, "\n", "\\n"), "?")
	if cut := []rune(line); len(cut) > most {
		return string(cut[:most]) + "..."
	}
	return line
}
