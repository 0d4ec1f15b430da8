package plan

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/objects/pod/podtest"
)

// registry is where images come from, and how they come to nodes.
type registry struct {
	// pins and fetches: the policy says so.
	pins, fetches bool
	// moved is how often other bits were pushed by all tags.
	moved int
	// mute: nodes do not say what they got for volumes that are images.
	mute bool
	// missing are the templates whose image is not there for the nodes on which they are bad.
	missing map[string]bool
	// awaited are the nodes that were to have images before their daemon was taken away.
	awaited map[string]bool
}

// rules is the image of the volume.
const rules = "example.com/rules:live"

// drawImages has policies pin images, and waves fetch them.
func (l *lab) drawImages(policy string) string {
	l.missing, l.awaited = map[string]bool{}, map[string]bool{}
	if policy == "" {
		return ""
	}
	if l.pins = rapid.IntRange(1, 3).Draw(l.t, "images are pinned") == 1; l.pins {
		policy += "images: Pinned\n"
		if rapid.IntRange(1, 3).Draw(l.t, "an image is a volume") == 1 {
			l.mute = rapid.Bool().Draw(l.t, "nodes are silent about it")
			spec := &l.ds.Spec.Template.Spec
			spec.Volumes = append(spec.Volumes, podtest.ImageVolume("rules", rules))
			spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts,
				corev1.VolumeMount{Name: "rules", MountPath: "/rules"})
			l.Objects.Revisions = nil
		}
	}
	waves := strings.Count(policy, "{name: ")
	n := rapid.IntRange(0, 2).Draw(l.t, "waves that fetch")
	if l.fetches = min(n, waves) > 0; l.fetches {
		how := rapid.SampledFrom([]string{"fetch: true", "fetch: true, fetchDeadline: 2m"}).Draw(l.t, "how they fetch")
		policy = strings.Replace(policy, "{name: ", "{"+how+", name: ", n)
	}
	return policy
}

// resolve is what a node says of an image that it has.
func (l *lab) resolve(image string) string {
	if strings.Contains(image, "@") {
		return image
	}
	name, _, _ := strings.Cut(image, ":")
	return fmt.Sprintf("%s@sha256:%x", name, sha256.Sum256(fmt.Append(nil, image, l.moved)))
}

// fill has a template name the digests of its images, as far as they are known.
func (l *lab) fill(a *action.CreatePod, template *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	images, first := l.pinned.Images(a.UID, content.WithVariants(a.Revision, ""))
	if len(images) == 0 && !first {
		return template
	}
	template = template.DeepCopy()
	pinning.Fill(&template.Spec, images, first)
	return template
}

// cannotPull reports whether a node cannot have the image of a template.
func (l *lab) cannotPull(template, node string) bool {
	return l.missing[template] && l.bad[template][node]
}

// pull has a node say what it has pulled for a pod.
func (l *lab) pull(p *corev1.Pod) {
	p.Status.ContainerStatuses = slices.Clone(p.Status.ContainerStatuses)
	for _, c := range p.Spec.Containers {
		i := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
		if i < 0 {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name})
			i = len(p.Status.ContainerStatuses) - 1
		}
		s := &p.Status.ContainerStatuses[i]
		s.ImageID, s.VolumeMounts = l.resolve(c.Image), nil
		for _, v := range p.Spec.Volumes {
			if v.Image != nil && !l.mute {
				s.VolumeMounts = append(s.VolumeMounts, podtest.Mounted(v.Name, l.resolve(v.Image.Reference)))
			}
		}
	}
}

// fetch asks a node for images, or takes that back. Its agent answers a little later, where it can.
func (l *lab) fetch(a *action.FetchImages) action.Outcome {
	i := l.pod(a.PodUID)
	if i < 0 {
		return action.Gone
	}
	text, r := "", fetch.Request{Revision: a.Revision, At: l.Objects.Now}
	if a.Revision != "" {
		r.Images, _ = fetch.Images(&l.ds.Spec.Template.Spec)
		var err error
		if text, err = r.Text(); err != nil {
			l.t.Fatal(err)
		}
	}
	l.change(a.PodUID, func(p *corev1.Pod) {
		delete(p.Annotations, fetch.Name)
		if text != "" {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, fetch.Name, text)
		}
	})
	if text != "" && l.works(a.Node) {
		l.happen(60, func() { l.answer(a.PodUID, r.Key()) })
	}
	return action.OK
}

// answer has an agent say what came of a request. One that failed is tried again.
func (l *lab) answer(uid types.UID, key string) {
	i := l.pod(uid)
	if i < 0 {
		return
	}
	r, err := fetch.Of(l.Objects.Pods[i].Annotations)
	if err != nil || r == nil || r.Key() != key {
		return
	}
	reason := fetch.Fetched
	if l.cannotPull(content.TemplateOf(r.Revision), l.Objects.Pods[i].Spec.NodeName) {
		reason = fetch.NotFound
		l.happen(60, func() { l.answer(uid, key) })
	}
	if was, _ := r.Answered(l.Objects.Pods[i].Status.Conditions); was == reason {
		return
	}
	l.change(uid, func(p *corev1.Pod) {
		p.Status.Conditions = slices.DeleteFunc(slices.Clone(p.Status.Conditions),
			func(c corev1.PodCondition) bool { return c.Type == fetch.Condition })
		c := r.Answer(reason, "")
		c.LastTransitionTime = metav1.NewTime(l.Objects.Now)
		p.Status.Conditions = append(p.Status.Conditions, c)
	})
}

// behave has nodes behave well from now on. Agents that could not have images have tried again by the time of the plan:
// whether they do before their failure has lasted is a matter of seconds.
func (l *lab) behave() {
	l.bad = nil
	if !l.fetches {
		return
	}
	for _, p := range l.Objects.Pods {
		r, err := fetch.Of(p.Annotations)
		if err != nil || r == nil {
			continue
		}
		if was, _ := r.Answered(p.Status.Conditions); was == fetch.NotFound {
			l.answer(p.UID, r.Key())
		}
	}
	l.hush()
}

// lookAtFetches takes note of the nodes that are to have images before their daemon is taken away.
func (l *lab) lookAtFetches() {
	if !l.fetches {
		return
	}
	for _, n := range l.Objects.Nodes {
		order, _ := l.matrix.Order(l.ds.UID, n.Name)
		l.awaited[n.Name] = l.awaited[n.Name] || order.Fetch != standing.NoWish
	}
}

// hadFetched takes note of a node that is changed, and was asked for the images of the newest revision before.
func (l *lab) hadFetched(node string) {
	for _, p := range l.Objects.Pods {
		r, err := fetch.Of(p.Annotations)
		if err == nil && r != nil && meantFor(p) == node && r.Revision == l.newest() {
			l.awaited[node] = true
		}
	}
}

// patience is how long the nodes of a step may be waited for that are to have images before.
func patience(p *planner, s *step) time.Duration {
	if !s.fetches {
		return 0
	}
	at, _ := p.core.Follows.Policy.StepNamed(s.name)
	return p.core.Follows.Policy.Waves[at.Wave].FetchDeadline
}

// compareFetches compares which steps waited for images with what was foretold. A daemon that does not work is replaced
// without.
func (l *lab) compareFetches(p *planner, moved map[string]string, shaky map[string]bool) {
	said, foretold, is := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, s := range p.out.Steps {
		said[s.Name] = strings.Contains(s.From, "once its nodes have the images")
	}
	for _, s := range p.steps {
		waits := func(node string) bool { return !shaky[node] && p.wished[node] }
		foretold[s.name] = said[s.name] && (slices.ContainsFunc(s.nodes, waits) || !slices.ContainsFunc(s.nodes,
			func(node string) bool { return shaky[node] }))
	}
	for node, step := range moved {
		is[step] = is[step] || l.awaited[node]
	}
	for step := range is {
		if foretold[step] != is[step] {
			l.t.Errorf("that step %s waits for images is foretold: %v, it is so: %v", step, foretold[step], is[step])
		}
	}
}

// knows reports whether a rollout knows what the volume's image is in a template, "" for any, and whether no node said its
// digest.
func knows(r *v1alpha1.DaemonSetRollout, template string) (known, silent bool) {
	if r == nil || r.Status.Images == nil {
		return false, false
	}
	for _, t := range r.Status.Images.Templates {
		for _, i := range t.Images {
			if i.Image == rules && (template == "" || t.Template == template) {
				known, silent = true, silent || i.Digest == ""
			}
		}
	}
	return known, silent
}

// comparePins compares whether the image of a volume is pinned with what was foretold, by what was known before.
func (l *lab) comparePins(p *planner, before *v1alpha1.DaemonSetRollout) {
	told, _ := knows(before, "")
	known, silent := knows(l.rollout(), content.TemplateOf(l.newest()))
	said := slices.ContainsFunc(p.out.Warnings, func(w string) bool { return strings.HasPrefix(w, rules+", of a volume, may not") })
	if told && known && p.out.Nodes.Change+p.out.Nodes.New > 0 && said != silent {
		l.t.Errorf("that %s is not pinned is foretold: %v, it is so: %v", rules, said, silent)
	}
}
