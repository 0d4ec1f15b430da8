package copies

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/revision"
)

// story makes up a history of DaemonSet "agent" and of one pod with content "id1" on node n1.
type story struct{ record history.Record }

func (s *story) put(o metav1.Object) *story {
	s.record.Events = append(s.record.Events, history.Event{Revision: int64(len(s.record.Events) + 1), Object: o})
	return s
}

func (s *story) gone(o metav1.Object) *story {
	s.put(o)
	s.record.Events[len(s.record.Events)-1].Deleted = true
	return s
}

func set() *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent", UID: "agent"}}
	of := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: revision.Map.Name}}
	d.Spec.Template.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: of}}}
	return d
}

func owned(name string, labels map[string]string) metav1.ObjectMeta {
	kind := appsv1.SchemeGroupVersion.WithKind("DaemonSet")
	return metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Labels: labels, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set(), kind)},
	}
}

func conf(value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: revision.Map.Name, UID: "conf"}, Data: map[string]string{"value": value}}
}

func replica(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: owned(name, map[string]string{revision.ContentLabel: revision.Copy}), Data: map[string]string{"value": value},
	}
}

func list(id, replica string) *corev1.ConfigMap {
	text := fmt.Sprintf(`{"id":%q,"members":[{"kind":"ConfigMap","name":%q,"copy":%q}]}`, id, revision.Map.Name, replica)
	return &corev1.ConfigMap{
		ObjectMeta: owned("agent-"+id, map[string]string{revision.ContentLabel: revision.Manifest}),
		Data:       map[string]string{"content.json": text},
	}
}

// absent lists a content without the object.
func absent(id, as string) *corev1.ConfigMap {
	m := list(id, as)
	m.Data["content.json"] = strings.Replace(m.Data["content.json"], `"}]`, `","absent":true}]`, 1)
	return m
}

// empty is the copy for what was missing, in place of conf-none.
func empty() *corev1.ConfigMap {
	m := replica("conf-vdocdnjwdj7fp2u2jecegr5v", "")
	m.Data = nil
	return m
}

func pod(id, refers string) *corev1.Pod {
	labels := map[string]string{appsv1.ControllerRevisionHashLabelKey: "hash"}
	if id != "" {
		labels[revision.Label] = "hash." + id
	}
	of := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: refers}}
	return &corev1.Pod{ObjectMeta: owned("pod", labels), Spec: corev1.PodSpec{
		NodeName: "n1", Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: of}}},
	}}
}

// variables has a pod take environment variables from another ConfigMap than it mounts.
func variables(p *corev1.Pod, from string) *corev1.Pod {
	of := &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: from}}
	p.Spec.Containers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: of}}}}
	return p
}

// pass is the author's Secret, secret a copy of it.
func pass(value string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: revision.Secret.Name, UID: "pass"}, Data: map[string][]byte{"value": []byte(value)},
	}
}

func secret(name, value string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: owned(name, map[string]string{revision.ContentLabel: revision.Copy}),
		Data:       map[string][]byte{"value": []byte(value)},
	}
}

// both lists a content of both objects.
func both(id, conf, pass string) *corev1.ConfigMap {
	m := list(id, conf)
	m.Data["content.json"] = strings.Replace(m.Data["content.json"], `}]`,
		fmt.Sprintf(`},{"kind":"Secret","name":%q,"copy":%q}]`, revision.Secret.Name, pass), 1)
	return m
}

// mounts has a pod mount a Secret too, among several sources of a volume.
func mounts(p *corev1.Pod, secret string) *corev1.Pod {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}},
		}},
	}})
	return p
}

// points has the volumes of a pod show a copy of content id2 in place of conf-a.
func points(p *corev1.Pod, to string) *corev1.Pod {
	p.Labels[revision.Label] = "hash.id2"
	p.Annotations = map[string]string{revision.LiveAnnotation: fmt.Sprintf(
		`{"content":"id2","volumes":[{"kind":"ConfigMap","name":"conf-a","copy":%q}]}`, to)}
	return p
}

// withSecret has a content of both objects, and no pod of it.
func withSecret() *story {
	return (&story{}).put(conf("v0")).put(pass("p0")).put(set()).put(replica("conf-a", "v0")).
		put(secret("pass-a", "p0")).put(both("id1", "conf-a", "pass-a"))
}

// next has two contents, and a pod of the first.
func next() *story {
	return began().put(pod("id1", "conf-a")).put(conf("v1")).put(replica("conf-b", "v1")).put(list("id2", "conf-b"))
}

// began has a content, and no pod of it.
func began() *story {
	return (&story{}).put(conf("v0")).put(set()).put(replica("conf-a", "v0")).put(list("id1", "conf-a"))
}

func TestHistories(t *testing.T) {
	released := pod("id1", "conf-a")
	released.OwnerReferences = nil
	going := set()
	going.DeletionTimestamp = &metav1.Time{}
	for _, c := range []struct {
		name, rule string
		story      *story
	}{
		{"a pod refers to its copy", "", began().put(pod("id1", "conf-a")).gone(pod("id1", "conf-a"))},
		{"the copy goes after the pod", "",
			began().put(pod("id1", "conf-a")).gone(pod("id1", "conf-a")).gone(replica("conf-a", "v0"))},
		{"the copy goes before the pod", Early,
			began().put(pod("id1", "conf-a")).gone(replica("conf-a", "v0")).gone(pod("id1", "conf-a"))},
		{"the copy goes, and is made again", Early,
			began().put(pod("id1", "conf-a")).gone(replica("conf-a", "v0")).put(replicaAgain())},
		{"the copy comes after the pod", Early,
			(&story{}).put(conf("v0")).put(set()).put(list("id1", "conf-a")).put(pod("id1", "conf-a")).put(replica("conf-a", "v0"))},
		{"the pod is nobody's by then", "",
			began().put(pod("id1", "conf-a")).put(released).gone(replica("conf-a", "v0")).gone(released)},
		{"the DaemonSet goes with all it has", "",
			began().put(pod("id1", "conf-a")).put(going).gone(replica("conf-a", "v0")).gone(pod("id1", "conf-a"))},
		{"the pod has content and refers to the author's object", Refers, began().put(pod("id1", "conf"))},
		{"the pod has another content's copy", Refers,
			began().put(conf("v1")).put(replica("conf-b", "v1")).put(pod("id1", "conf-b"))},
		{"nobody has listed the content", Refers, began().put(pod("id2", "conf-a"))},
		{"the pod has no content, and the author's object", "", began().put(pod("", "conf"))},
		{"environment variables are of another content's copy", Refers,
			began().put(conf("v1")).put(replica("conf-b", "v1")).put(variables(pod("id1", "conf-a"), "conf-b"))},
		{"the object was gone, and the pod refers to what somebody can make", Refers,
			began().put(absent("id3", "conf-none")).put(pod("id3", "conf-none"))},
		{"the object was gone, and the pod refers to an empty copy", "",
			began().put(empty()).put(absent("id3", "conf-none")).put(variables(pod("id3", "_conf-none"), empty().Name))},
		{"the object was gone, and the pod refers to an empty copy that nobody has made", Early,
			began().put(absent("id3", "conf-none")).put(variables(pod("id3", "_conf-none"), empty().Name)).put(empty())},
		{"the object was gone, and the empty copy goes before the pod", Early, began().put(empty()).
			put(absent("id3", "conf-none")).put(variables(pod("id3", "_conf-none"), empty().Name)).gone(empty())},
		{"the object was gone, and the pod refers to what nobody can make", "",
			began().put(absent("id3", "conf-none")).put(pod("id3", "_conf-none"))},
		{"the object was there, and the pod refers to what nobody can make", Refers, began().put(pod("id1", "_conf-a"))},
		{"the object was gone, and the pod has a copy", Refers,
			began().put(absent("id3", "conf-none")).put(pod("id3", "conf-a"))},
		{"the pod has no content, and a copy", Refers, began().put(pod("", "conf-a"))},
		{"a pod refers to both copies", "", withSecret().put(mounts(pod("id1", "conf-a"), "pass-a"))},
		{"the copy of a Secret goes before the pod", Early,
			withSecret().put(mounts(pod("id1", "conf-a"), "pass-a")).gone(secret("pass-a", "p0"))},
		{"the pod has a copy, and the Secret itself", Refers, withSecret().put(mounts(pod("id1", "conf-a"), "pass"))},
		{"the Secret is no content, and the pod has it itself", "",
			began().put(pass("p0")).put(mounts(pod("id1", "conf-a"), "pass"))},
		{"the Secret is no content, and the pod has a copy", Refers,
			began().put(pass("p0")).put(secret("pass-a", "p0")).put(mounts(pod("id1", "conf-a"), "pass-a"))},
		{"a ConfigMap of the Secret's copy's name", Refers, withSecret().put(pod("id1", "pass-a"))},
		{"a copy of what no Secret held", Made, withSecret().put(secret("pass-b", "p1"))},
		{"a copy of what another kind held", Made, withSecret().put(replica("conf-b", "p0"))},
		{"a pod is pointed at another content", "", next().put(points(pod("id1", "conf-a"), "conf-b"))},
		{"a pod is pointed at a content's list, and shows another's copy", Refers,
			next().put(points(pod("id1", "conf-a"), "conf-a"))},
		{"what a pod showed goes when it shows something else", "",
			next().put(points(pod("id1", "conf-a"), "conf-b")).gone(replica("conf-a", "v0"))},
		{"what a pod showed goes before it shows something else", Early,
			next().gone(replica("conf-a", "v0")).put(points(pod("id1", "conf-a"), "conf-b"))},
		{"what a pod of a DaemonSet that is gone showed goes before it shows something else", "",
			next().gone(set()).gone(replica("conf-a", "v0")).put(points(pod("id1", "conf-a"), "conf-b"))},
		{"what a pod shows goes", Early,
			next().put(points(pod("id1", "conf-a"), "conf-b")).gone(replica("conf-b", "v1"))},
		{"a copy of what nobody has written", Made, began().put(replica("conf-b", "v1")).put(conf("v1"))},
		{"a copy of what was written before", "", began().put(conf("v1")).put(replica("conf-c", "v0"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := Check(c.story.record)
			if c.rule == "" && len(found) > 0 || c.rule != "" && (len(found) != 1 || found[0].Rule != c.rule) {
				t.Errorf("found %v, want rule %q", found, c.rule)
			}
		})
	}
}

func replicaAgain() *corev1.ConfigMap {
	m := replica("conf-a", "v0")
	m.UID = "again"
	return m
}

// ends is a state that is as it should be: a pod has what the object holds.
func ends() history.State {
	rollout := &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{
		Name: "agent", Labels: map[string]string{history.OwnerLabel: "agent"},
	}}
	rollout.Status.StableRevision, rollout.Status.TargetRevision = "hash.id1", "hash.id1"
	return history.State{
		Sets: []*appsv1.DaemonSet{set()}, Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}},
		Pods:     []*corev1.Pod{pod("id1", "conf-a")},
		Policies: []*v1alpha1.RolloutPolicy{{Spec: v1alpha1.RolloutPolicySpec{Content: &v1alpha1.Content{}}}},
		Rollouts: []*v1alpha1.DaemonSetRollout{rollout},
		Contents: []metav1.Object{conf("v0"), replica("conf-a", "v0"), list("id1", "conf-a")},
	}
}

// mounted has the template name the Secret too.
func mounted(s *history.State) {
	of := &corev1.SecretVolumeSource{SecretName: revision.Secret.Name}
	spec := &s.Sets[0].Spec.Template.Spec
	spec.Volumes = append(spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{Secret: of}})
	s.Contents = append(s.Contents, pass("p0"))
}

// leave has the policy go; contents, if they are not nil, is what is left of what there was.
func leave(s *history.State, contents []metav1.Object) {
	s.Policies, s.Rollouts[0].Status.Content = nil, &v1alpha1.ContentStatus{Kept: true}
	s.Rollouts[0].Status.Conditions = []metav1.Condition{{Type: "PolicyGone", Status: metav1.ConditionTrue}}
	if contents != nil {
		s.Contents = contents
	}
}

func TestUnsettled(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(*history.State)
	}{
		{"all is well", "", func(*history.State) {}},
		{"the object holds something else", "and the objects hold", func(s *history.State) { s.Contents[0] = conf("v1") }},
		{"a pod has no content", "and the objects hold", func(s *history.State) { s.Pods[0] = pod("", "conf") }},
		{"the policy does not want content", "", func(s *history.State) {
			s.Policies[0].Spec.Content = nil
			s.Pods[0] = pod("", "conf")
		}},
		{"the policy takes neither kind", "", func(s *history.State) {
			s.Policies[0].Spec.Content = &v1alpha1.Content{ConfigMaps: v1alpha1.ContentNone}
			s.Pods[0] = pod("", "conf")
		}},
		{"the node is none for the DaemonSet", "", func(s *history.State) {
			s.Contents[0] = conf("v1")
			s.Nodes[0].Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		}},
		{"the copy of a pod is gone", "its copies are gone", func(s *history.State) { s.Contents = s.Contents[2:] }},
		{"the copies of the target are gone", "its copies are gone", func(s *history.State) {
			s.Rollouts[0].Status.TargetRevision = "hash.id2"
		}},
		{"a copy of a DaemonSet that is gone", "a DaemonSet that is gone", func(s *history.State) {
			m := replica("conf-x", "v0")
			m.OwnerReferences[0].UID = "another"
			s.Contents = append(s.Contents, m)
		}},
		{"a copy that nobody needs", "conf-x is content that nobody needs", func(s *history.State) {
			s.Contents = append(s.Contents, replica("conf-x", "v0"))
		}},
		{"a copy of a Secret that nobody needs", "Secret pass-x is content that nobody needs", func(s *history.State) {
			s.Contents = append(s.Contents, secret("pass-x", "p0"))
		}},
		{"the policy wants the Secret too", "and the objects hold", func(s *history.State) {
			mounted(s)
			s.Policies[0].Spec.Content.Secrets = v1alpha1.ContentReferenced
		}},
		{"the policy wants the Secret too, and the pod has it", "", func(s *history.State) {
			mounted(s)
			s.Policies[0].Spec.Content.Secrets = v1alpha1.ContentReferenced
			s.Contents[2] = both("id1", "conf-a", "pass-a")
			s.Contents = append(s.Contents, secret("pass-a", "p0"))
		}},
		{"the policy does not want the Secret", "", mounted},
		{"the object is gone, and the pod has its copy", "which is", func(s *history.State) {
			s.Contents = s.Contents[1:]
		}},
		{"the object is gone, and so it is for the pod", "", func(s *history.State) {
			s.Contents = []metav1.Object{absent("id1", "conf-none")}
			s.Pods[0] = pod("id1", "conf-none")
		}},
		{"a list that nobody needs", "agent-id2 is content that nobody needs", func(s *history.State) {
			s.Contents = append(s.Contents, list("id2", "conf-a"))
		}},
		{"the policy is gone, and the rollout speaks of its copies", "", func(s *history.State) { leave(s, nil) }},
		{"the policy is gone, and no pod has the copies of which the rollout speaks", "content that nobody needs",
			func(s *history.State) { leave(s, nil); s.Pods[0] = pod("", "conf") }},
		{"the policy is gone, and the rollout speaks of copies that have gone", "speaks of copies that have gone",
			func(s *history.State) { leave(s, s.Contents[:1]); s.Pods[0] = pod("", "conf") }},
		{"the rollout speaks of another content, whose copies are there", "", func(s *history.State) {
			s.Rollouts[0].Status.TargetRevision = "hash.id2"
			s.Contents = append(s.Contents, replica("conf-b", "v1"), list("id2", "conf-b"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := ends()
			c.change(&s)
			found := strings.Join(Unsettled(s, true), "\n")
			if c.want == "" && found != "" || !strings.Contains(found, c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}
