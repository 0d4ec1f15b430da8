package plan

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
)

// labBelow is what the book of contents tells and asks.
type labBelow struct {
	*variants.Book
	rows *matrix.Matrix
}

func (r labBelow) Pods() []types.UID { return r.rows.Pods() }

// texts are what the author's objects hold.
type texts map[content.Ref]string

var (
	agentConf = content.Ref{Kind: content.ConfigMap, Name: "agent"}
	agentCert = content.Ref{Kind: content.Secret, Name: "agent"}
	// labKey is the key of the namespace, which in a cluster nobody knows.
	labKey = bytes.Repeat([]byte("k"), 32)
)

// withContent has the template read a ConfigMap, and perhaps a Secret, which hold the text.
func (l *lab) withContent(text string) {
	l.texts = texts{agentConf: text}
	if rapid.Bool().Draw(l.t, "a Secret is read") {
		l.texts[agentCert] = text
	}
	spec := &l.ds.Spec.Template.Spec
	for _, ref := range l.texts.refs() {
		v := corev1.Volume{Name: strings.ToLower(string(ref.Kind))}
		if ref.Kind == content.ConfigMap {
			v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: ref.Name}}
		} else {
			v.Secret = &corev1.SecretVolumeSource{SecretName: ref.Name}
		}
		m := corev1.VolumeMount{Name: v.Name, MountPath: "/etc/" + v.Name}
		if rapid.IntRange(1, 6).Draw(l.t, "a part is mounted of "+ref.String()) == 6 {
			m.SubPath = "agent.conf"
		}
		spec.Volumes = append(spec.Volumes, v)
		spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, m)
	}
	l.Objects.Revisions = nil
	for _, ref := range l.texts.refs() {
		l.author(ref, text)
	}
}

// refs are the objects, in order.
func (t texts) refs() []content.Ref { return slices.SortedFunc(maps.Keys(t), content.Ref.Compare) }

// with is the same, but one.
func (t texts) with(ref content.Ref, text string) texts {
	out := maps.Clone(t)
	out[ref] = text
	return out
}

// writes is an object as its author writes it.
func writes(ref content.Ref, text string) metav1.Object {
	meta := metav1.ObjectMeta{Name: ref.Name}
	if ref.Kind == content.Secret {
		return &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"agent.conf": []byte(text)}}
	}
	return &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"agent.conf": text}}
}

// holds is what an object holds.
func holds(o metav1.Object) *content.Object {
	if s, is := o.(*corev1.Secret); is {
		return content.OfSecret(s)
	}
	return content.OfConfigMap(o.(*corev1.ConfigMap))
}

// author has the author write an object. The controller hears of it in this moment.
func (l *lab) author(ref content.Ref, text string) {
	l.texts = l.texts.with(ref, text)
	l.keep(writes(ref, text))
}

// keep keeps a ConfigMap or a Secret.
func (l *lab) keep(o metav1.Object) {
	l.made++
	o.SetNamespace(l.ds.Namespace)
	o.SetUID(types.UID(fmt.Sprintf("map-%d", l.made)))
	o.SetResourceVersion(fmt.Sprint(l.made))
	l.kept[holds(o).Ref] = o
	if l.contents != nil {
		l.contents.Tell(contents.Object{Object: o})
	}
}

// keepContent reads what is to be read, and does what the book of contents wants done; false for nothing.
func (l *lab) keepContent() (did bool) {
	if want, moved := l.contents.Follow(); moved {
		for _, kind := range []content.Kind{content.ConfigMap, content.Secret} {
			l.read(kind, want[l.ds.Namespace][kind])
		}
	}
	for _, j := range l.contents.Jobs() {
		did = true
		r := contents.Result{Job: j}
		if key := j.Key; key != nil {
			key = key.DeepCopy()
			key.Data = map[string][]byte{"key": labKey}
			l.keep(key)
			r.Made = append(r.Made, key)
		}
		for _, o := range j.Make {
			l.keep(o)
			r.Made = append(r.Made, o)
		}
		for _, o := range j.Delete {
			delete(l.kept, holds(o).Ref)
			r.Deleted = append(r.Deleted, o)
		}
		l.contents.Tell(r)
	}
	return did
}

// read has the controller read all objects of a kind, or none any more.
func (l *lab) read(kind content.Kind, reads bool) {
	switch {
	case reads && !l.reading[kind]:
		for _, ref := range slices.SortedFunc(maps.Keys(l.kept), content.Ref.Compare) {
			if ref.Kind == kind {
				l.contents.Tell(contents.Object{Object: l.kept[ref]})
			}
		}
		l.contents.Tell(contents.Sight{Namespace: l.ds.Namespace, Kind: kind, Read: true})
	case !reads && l.reading[kind]:
		l.contents.Tell(contents.Sight{Namespace: l.ds.Namespace, Kind: kind, Over: true})
	}
	l.reading[kind] = reads
}

// idOfTexts is the ID of the content that texts are.
func (l *lab) idOfTexts(of texts) string {
	var refs []content.Ref
	for _, ref := range of.refs() {
		if ref.Kind == content.ConfigMap || l.secrets {
			refs = append(refs, ref)
		}
	}
	var key []byte
	if content.Keyed(refs) {
		key = labKey
	}
	c, err := content.Of(key, l.ds.Name, refs, func(ref content.Ref) ([]byte, error) {
		return content.Hash(key, l.ds.Name, ref, holds(writes(ref, of[ref])))
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return c.ID
}

// contentNow is the ID of the content of the newest revision; "" where it has none.
func (l *lab) contentNow() string {
	onDelete := l.ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	if len(l.texts) == 0 || onDelete || len(l.Objects.Policies) == 0 || !selects(l.Objects.Policies[0], l.ds) {
		return ""
	}
	return l.idOfTexts(l.texts)
}

// somebodyWrites has the author write something else, which may be bad on some nodes.
func (l *lab) somebodyWrites(bad bool) {
	ref := rapid.SampledFrom(l.texts.refs()).Draw(l.t, "which object")
	text := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(l.t, "somebody writes")
	whole := content.Revision(history.HashOf(l.revision()), l.idOfTexts(l.texts.with(ref, text)))
	if bad && l.bad[whole] == nil && text != "a" {
		l.bad[whole] = map[string]bool{}
		for _, n := range l.Objects.Nodes {
			l.bad[whole][n.Name] = rapid.Bool().Draw(l.t, "the text fails on "+n.Name)
		}
	}
	l.author(ref, text)
	l.decide()
}

// point has a running pod show other content, which its agent does a little later.
func (l *lab) point(a *action.PointPod) action.Outcome {
	members, given := l.contents.Given(a.UID, a.Revision)
	i := l.pod(a.PodUID)
	if !given || i < 0 {
		return action.Failed
	}
	volumes, err := content.Point(&l.Objects.Pods[i].Spec, members)
	if err != nil {
		l.t.Fatal(err)
	}
	l.did(deed{node: a.Node, revision: a.Revision})
	to := content.Pointing{Content: content.IDOf(a.Revision), At: a.At, Settle: metav1.Duration{Duration: a.Settle},
		Was: string(a.Before), Volumes: volumes}
	text, err := to.Text()
	if err != nil {
		l.t.Fatal(err)
	}
	l.change(a.PodUID, func(p *corev1.Pod) {
		metav1.SetMetaDataLabel(&p.ObjectMeta, content.RevisionLabel, a.Revision)
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, content.LiveName, text)
	})
	if l.works(a.Node) {
		l.happen(5, func() { l.mount(a.PodUID, to.Key()) })
	}
	return action.OK
}

// mount has an agent say that a pod shows what it was pointed at.
func (l *lab) mount(uid types.UID, key string) {
	l.change(uid, func(p *corev1.Pod) {
		to, err := content.PointingOf(p.Annotations)
		if err != nil || to == nil || to.Key() != key {
			return // it shows something else by now
		}
		condition(p, content.MountedCondition, corev1.ConditionTrue, l.Objects.Now, key)
		if l.isBad(p) {
			condition(p, corev1.PodReady, corev1.ConditionFalse, l.Objects.Now, "")
			surveytest.CrashesAt(p, l.Objects.Now)
		}
	})
}

// isBad reports whether a pod ends again and again, by its template or its content.
func (l *lab) isBad(p *corev1.Pod) bool {
	return l.bad[hashOf(p)][p.Spec.NodeName] || l.bad[p.Labels[content.RevisionLabel]][p.Spec.NodeName]
}

// shows reports whether a pod's volumes show what they are to.
func shows(p *corev1.Pod) bool {
	to, err := content.PointingOf(p.Annotations)
	return err == nil && (to == nil || slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == content.MountedCondition && strings.HasPrefix(c.Message, to.Key())
	}))
}

// isGiven reports whether the newest pod of a node was given content as it runs.
func (l *lab) isGiven(node string) bool {
	o := l.newestPod(node)
	return o != nil && o.Annotations[content.LiveName] != ""
}

// planned has a plan be about what a file has the objects hold, and what there is of content, read as the command does.
func (l *lab) planned(o survey.Objects, next *appsv1.DaemonSet) survey.Objects {
	would := o
	would.DaemonSets = []*appsv1.DaemonSet{next}
	var changes []Change
	for _, ref := range l.says.refs() {
		changes = append(changes, Change{Namespace: next.Namespace, Old: holds(l.kept[ref]), New: holds(writes(ref, l.says[ref]))})
	}
	edits, direct := Contents(survey.New(o), survey.New(would), changes)
	for _, c := range changes {
		l.compareReach(&c, edits[next.UID], direct)
	}
	o.Edits, l.direct = edits, len(edits) == 0
	held := &survey.Holdings{Objects: map[content.Ref]*content.Object{}}
	for _, ref := range survey.New(o).Needs(next) {
		held.Objects[ref] = nil
		if have := l.kept[ref]; have != nil {
			held.Objects[ref] = holds(have)
		}
		if ref == content.KeyRef && l.kept[ref] != nil {
			held.Key = content.KeyOf(l.kept[ref].(*corev1.Secret))
		}
	}
	for _, c := range changes {
		held.Objects[c.New.Ref] = c.New
	}
	o.Holdings = map[string]*survey.Holdings{next.Namespace: held}
	return o
}

// compareReach compares in which ways the change of an object is said to reach nodes with who names what.
func (l *lab) compareReach(c *Change, edits []content.Edit, direct []string) {
	ref := c.New.Ref
	differs := len(c.edits()) > 0
	follows := differs && l.contentNow() != "" && (ref.Kind == content.ConfigMap || l.secrets)
	reads, part := false, false
	for _, p := range l.Objects.Pods {
		for _, v := range p.Spec.Volumes {
			if v.ConfigMap != nil && v.ConfigMap.Name == ref.Name && ref.Kind == content.ConfigMap ||
				v.Secret != nil && v.Secret.SecretName == ref.Name && ref.Kind == content.Secret {
				i := slices.IndexFunc(p.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
				reads, part = true, p.Spec.Containers[0].VolumeMounts[i].SubPath != ""
			}
		}
	}
	if said := slices.ContainsFunc(edits, func(e content.Edit) bool { return e.Ref == ref }); said != follows {
		l.t.Errorf("that the change of %s is a part of the revision is said: %v, it is: %v", ref, said, follows)
	}
	at := slices.IndexFunc(direct, func(text string) bool { return strings.HasPrefix(text, ref.String()+" ") })
	says := at >= 0
	if says && reads && strings.Contains(direct[at], "only when a container that reads it starts") != part {
		l.t.Errorf("of %s, of which a part is mounted: %v, it says %q", ref, part, direct[at])
	}
	if is := differs && (reads || !follows); says != is {
		l.t.Errorf("that the change of %s waits for no step is said: %v (%q), it is so: %v", ref, says, direct, is)
	}
}
