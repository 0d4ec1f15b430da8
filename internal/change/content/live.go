package content

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/objects/pod"
)

// LiveName is the annotation of a pod whose volumes show other copies than its spec names; a Pointing is its
// value. The API takes it from the DaemonSet controller alone. On a Node it is the label of an agent that
// follows the annotation.
const LiveName = "everynode.io/live-content"

// MountedCondition is the pod condition by which an agent says what the volumes show. Its message begins with
// the Key of the Pointing.
const MountedCondition corev1.PodConditionType = "everynode.io/ContentMounted"

// Pointing says what the volumes of a running pod are to show.
type Pointing struct {
	// Content is the ID of the content.
	Content string `json:"content"`
	// At is when the controller asked for it, Settle how long after the mounting the pod's readiness counts.
	At     time.Time       `json:"at"`
	Settle metav1.Duration `json:"settle"`
	// Restarts is how often the container that restarted most had by then, and RestartsBy how often each had, which an
	// older version does not write. Was is what the pod's daemon was like.
	Restarts   int32            `json:"restarts,omitempty"`
	RestartsBy map[string]int32 `json:"restartsBy,omitempty"`
	Was        string           `json:"was,omitempty"`
	// Volumes are in the order of Kind and Name.
	Volumes []Pointed `json:"volumes,omitempty"`
}

// Pointed has volumes show a copy in place of the object of the kind that the pod's spec names.
type Pointed struct {
	Ref
	Copy string `json:"copy"`
}

// Key tells a Pointing from those before and after it.
func (p *Pointing) Key() string { return p.Content + " of " + p.At.UTC().Format(time.RFC3339Nano) }

// Text is the value of the annotation.
func (p *Pointing) Text() (string, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("write what a pod's volumes are to show: %w", err)
	}
	return string(raw), nil
}

// PointingOf reads the annotation; nil if there is none.
func PointingOf(annotations map[string]string) (*Pointing, error) {
	text, is := annotations[LiveName]
	if !is {
		return nil, nil
	}
	var p Pointing
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil, fmt.Errorf("read annotation %s: %w", LiveName, err)
	}
	if !IsID(p.Content) || p.At.IsZero() || len(p.Volumes) > MaxObjects {
		return nil, fmt.Errorf("read annotation %s: it is not as it was written", LiveName)
	}
	return &p, nil
}

// Check returns an error unless each volume's copy can be one of an object that the pod's volumes name.
func (p *Pointing) Check(spec *corev1.PodSpec) error {
	named := map[Ref]bool{}
	for i := range spec.Volumes {
		walkVolume(&spec.Volumes[i].VolumeSource, func(kind Kind, name *string) { named[Ref{kind, *name}] = true })
	}
	for _, v := range p.Volumes {
		switch {
		case !named[v.Ref]:
			return fmt.Errorf("no volume of the pod names %s", v.Ref)
		case !isCopyOf(v.Copy, v.listed()):
			return fmt.Errorf("%s is the name of no copy of %s", v.Copy, v.Ref)
		}
	}
	return nil
}

// Has reports whether volumes are to show the object as a copy of another. A nil Pointing has none.
func (p *Pointing) Has(kind Kind, name string) bool {
	return p != nil && slices.ContainsFunc(p.Volumes, func(v Pointed) bool { return v.Kind == kind && v.Copy == name })
}

// ShownBy reports whether a volume of the pod that Shown returns is to show a copy that the Pointing has.
func (p *Pointing) ShownBy(v *corev1.Volume) (is bool) {
	walkVolume(&v.VolumeSource, func(kind Kind, name *string) { is = is || p.Has(kind, *name) })
	return is
}

// Shown returns the pod with the volumes that it is to show: itself, unless it is pointed at other copies.
func Shown(pod *corev1.Pod) (*corev1.Pod, *Pointing, error) {
	p, err := PointingOf(pod.Annotations)
	if err == nil && p != nil {
		err = p.Check(&pod.Spec)
	}
	if err != nil || p == nil {
		return pod, nil, err
	}
	copies := make(map[Ref]string, len(p.Volumes))
	for _, v := range p.Volumes {
		copies[v.Ref] = v.Copy
	}
	shown := *pod
	shown.Spec.Volumes = make([]corev1.Volume, len(pod.Spec.Volumes))
	for i := range pod.Spec.Volumes {
		pod.Spec.Volumes[i].DeepCopyInto(&shown.Spec.Volumes[i])
		walkVolume(&shown.Spec.Volumes[i].VolumeSource, func(kind Kind, name *string) {
			if to, is := copies[Ref{kind, *name}]; is {
				*name = to
			}
		})
	}
	return &shown, p, nil
}

// Point returns what the volumes of a running pod with the spec are to show, so that all of it has a content with
// these members. The error says what of the pod cannot follow without a restart.
func Point(spec *corev1.PodSpec, members []Member) ([]Pointed, error) {
	var out []Pointed
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		fixed, over := mountedByPart(spec, v.Name), readAtStart(spec, v.Name)
		var err error
		walkVolume(&v.VolumeSource, func(kind Kind, name *string) {
			ref := Ref{kind, *name}
			m, is := memberFor(members, ref)
			switch {
			case !is && IsID(ref.hash()):
				err = nobodysCopy(v, ref)
			case !is || ref.listed() == m.Copy:
			case m.Absent:
				err = fmt.Errorf("%s is gone", m.Ref)
			case fixed != "":
				err = fmt.Errorf("container %s mounts %s by subPath", fixed, m.Ref)
			case over != "":
				err = fmt.Errorf("init container %s has read %s, and does not run again", over, m.Ref)
			case !isCopyOf(m.Copy, ref.listed()):
				err = fmt.Errorf("the name of %s is too long to be followed", m.Ref)
			default:
				out = append(out, Pointed{ref, m.Copy})
			}
		})
		if err != nil {
			return nil, err
		}
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if ref := staleVariable(&containers[i], members); ref != (Ref{}) {
				return nil, fmt.Errorf("container %s has environment variables of %s", containers[i].Name, ref)
			}
		}
	}
	slices.SortFunc(out, func(a, b Pointed) int { return a.Ref.Compare(b.Ref) })
	return slices.Compact(out), nil
}

// nobodysCopy says what keeps a volume that shows a copy from following, where it is known of no member to be its own.
func nobodysCopy(v *corev1.Volume, ref Ref) error {
	if len(ref.listed()) == maxName {
		return fmt.Errorf("the name of what volume %s shows is too long to be followed", v.Name)
	}
	return fmt.Errorf("volume %s shows a copy of what is no longer content", v.Name)
}

// staleVariable returns what a container's environment is made of that is another now; the zero Ref for nothing.
func staleVariable(c *corev1.Container, members []Member) (stale Ref) {
	walkContainer(c, func(kind Kind, name *string) {
		ref := Ref{kind, *name}
		m, is := memberFor(members, ref)
		switch {
		case is && !m.isCalled(ref.Name):
			stale = m.Ref
		case !is && IsID(ref.hash()):
			stale = ref
		}
	})
	return stale
}

// mountedByPart returns the container that mounts a part of the volume, which does not follow it; "" for none.
func mountedByPart(spec *corev1.PodSpec, volume string) string {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for _, m := range containers[i].VolumeMounts {
				if m.Name == volume && (m.SubPath != "" || m.SubPathExpr != "") {
					return containers[i].Name
				}
			}
		}
	}
	return ""
}

// readAtStart returns the init container that mounts the volume, and is over when the pod runs; "" for none.
func readAtStart(spec *corev1.PodSpec, volume string) string {
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		mounts := func(m corev1.VolumeMount) bool { return m.Name == volume }
		if !pod.IsSidecar(c) && slices.ContainsFunc(c.VolumeMounts, mounts) {
			return c.Name
		}
	}
	return ""
}

// Follows reports whether a running pod sees a change of an object that it names, in a volume, within a minute or so.
// In environment variables, mounts with subPath and init containers it sees that only when a container starts again.
func Follows(spec *corev1.PodSpec, ref Ref) (is bool) {
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		walkVolume(&v.VolumeSource, func(kind Kind, name *string) {
			is = is || ref == (Ref{kind, *name}) && showsWhole(spec, v.Name)
		})
	}
	return is
}

// showsWhole reports whether a container that runs mounts a volume as a whole, or none mounts it at all.
func showsWhole(spec *corev1.PodSpec, volume string) bool {
	mounted, whole := false, false
	see := func(c *corev1.Container, runs bool) {
		for _, m := range c.VolumeMounts {
			if m.Name == volume {
				mounted, whole = true, whole || runs && m.SubPath == "" && m.SubPathExpr == ""
			}
		}
	}
	for i := range spec.InitContainers {
		see(&spec.InitContainers[i], pod.IsSidecar(&spec.InitContainers[i]))
	}
	for i := range spec.Containers {
		see(&spec.Containers[i], true)
	}
	return whole || !mounted
}

// memberFor returns the member for what a pod's spec names: the author's object, or any copy of it.
func memberFor(members []Member, ref Ref) (Member, bool) {
	for _, fits := range []func(*Member) bool{
		func(m *Member) bool { return m.Name == ref.Name },
		func(m *Member) bool { return m.Copy == ref.listed() || m.isCalled(ref.Name) },
		func(m *Member) bool { return isCopyOf(ref.listed(), m.Name) },
	} {
		for i := range members {
			if m := &members[i]; m.Kind == ref.Kind && fits(m) {
				return *m, true
			}
		}
	}
	return Member{}, false
}

// hash is the part of the name by which a copy differs from others of the object; "" if it cannot be a copy.
func (r Ref) hash() string {
	if i := strings.LastIndexByte(r.Name, '-'); i > 0 {
		return r.Name[i+1:]
	}
	return ""
}

// listed is the name by which the list of a content has what a pod's spec names, also where that is missing.
func (r Ref) listed() string { return strings.TrimPrefix(r.Name, nobodys) }

// isCopyOf reports whether a name is that of a copy of the named object, or of the object of which that is a
// copy. Where names were cut it is not known.
func isCopyOf(name, of string) bool {
	ref := Ref{Name: name}
	if !IsID(ref.hash()) || len(name) == maxName {
		return false
	}
	stem, other := name[:len(name)-digits-1], Ref{Name: of}
	return stem == of || IsID(other.hash()) && stem == of[:len(of)-digits-1]
}
