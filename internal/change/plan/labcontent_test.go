package plan

import (
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

// withContent has the template read a ConfigMap, which holds the text.
func (l *lab) withContent(text string) {
	from := corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "agent"}}
	spec := &l.ds.Spec.Template.Spec
	spec.Volumes = []corev1.Volume{{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &from}}}
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "c", MountPath: "/etc/agent"}}
	if rapid.IntRange(1, 6).Draw(l.t, "a part is mounted") == 6 {
		spec.Containers[0].VolumeMounts[0].SubPath = "agent.conf"
	}
	l.Objects.Revisions = nil
	l.author(text)
}

// author has the author write the ConfigMap. The controller hears of it in this moment.
func (l *lab) author(text string) {
	l.text = text
	l.keep(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Data: map[string]string{"agent.conf": text}})
}

// keep keeps a ConfigMap.
func (l *lab) keep(o *corev1.ConfigMap) {
	l.made++
	o.Namespace, o.UID, o.ResourceVersion = l.ds.Namespace, types.UID(fmt.Sprintf("map-%d", l.made)), fmt.Sprint(l.made)
	l.maps[o.Name] = o
	if l.contents != nil {
		l.contents.Tell(contents.Object{Object: o})
	}
}

// keepContent reads what is to be read, and does what the book of contents wants done; false for nothing.
func (l *lab) keepContent() (did bool) {
	if want, moved := l.contents.Follow(); moved {
		reads := want[l.ds.Namespace][content.ConfigMap]
		switch {
		case reads && !l.reading:
			for _, name := range slices.Sorted(maps.Keys(l.maps)) {
				l.contents.Tell(contents.Object{Object: l.maps[name]})
			}
			l.contents.Tell(contents.Sight{Namespace: l.ds.Namespace, Kind: content.ConfigMap, Read: true})
		case !reads && l.reading:
			l.contents.Tell(contents.Sight{Namespace: l.ds.Namespace, Kind: content.ConfigMap, Over: true})
		}
		l.reading = reads
	}
	for _, j := range l.contents.Jobs() {
		did = true
		r := contents.Result{Job: j}
		for _, o := range j.Make {
			l.keep(o.(*corev1.ConfigMap))
			r.Made = append(r.Made, o)
		}
		for _, o := range j.Delete {
			delete(l.maps, o.GetName())
			r.Deleted = append(r.Deleted, o)
		}
		l.contents.Tell(r)
	}
	return did
}

// idOfText is the ID of the content that a text is.
func (l *lab) idOfText(text string) string {
	ref := content.Ref{Kind: content.ConfigMap, Name: "agent"}
	c, err := content.Of(nil, l.ds.Name, []content.Ref{ref}, func(content.Ref) ([]byte, error) {
		return content.Hash(nil, l.ds.Name, ref, &content.Object{Ref: ref, Data: map[string]string{"agent.conf": text}})
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return c.ID
}

// contentNow is the ID of the content of the newest revision; "" where it has none.
func (l *lab) contentNow() string {
	onDelete := l.ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	if l.text == "" || onDelete || len(l.Objects.Policies) == 0 || !selects(l.Objects.Policies[0], l.ds) {
		return ""
	}
	return l.idOfText(l.text)
}

// somebodyWrites has the author write something else, which may be bad on some nodes.
func (l *lab) somebodyWrites(bad bool) {
	text := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(l.t, "somebody writes")
	whole := content.Revision(history.HashOf(l.revision()), l.idOfText(text))
	if bad && l.bad[whole] == nil && text != "a" {
		l.bad[whole] = map[string]bool{}
		for _, n := range l.Objects.Nodes {
			l.bad[whole][n.Name] = rapid.Bool().Draw(l.t, "the text fails on "+n.Name)
		}
	}
	l.author(text)
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

// planned has a plan be about the text, and what there is of content, read as the command does.
func (l *lab) planned(o survey.Objects, next *appsv1.DaemonSet, text string) survey.Objects {
	would, is := o, l.maps["agent"].DeepCopy()
	would.DaemonSets = []*appsv1.DaemonSet{next}
	is.Data = map[string]string{"agent.conf": text}
	change := Change{Namespace: next.Namespace, Old: content.OfConfigMap(l.maps["agent"]), New: content.OfConfigMap(is)}
	o.Edits, _ = Contents(survey.New(o), survey.New(would), []Change{change})
	l.direct = len(o.Edits) == 0
	held := &survey.Holdings{Objects: map[content.Ref]*content.Object{}}
	for _, ref := range survey.New(o).Needs(next) {
		held.Objects[ref] = nil
		if have := l.maps[ref.Name]; have != nil {
			held.Objects[ref] = content.OfConfigMap(have)
		}
	}
	held.Objects[change.New.Ref] = change.New
	o.Holdings = map[string]*survey.Holdings{next.Namespace: held}
	return o
}
