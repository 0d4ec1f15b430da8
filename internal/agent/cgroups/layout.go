package cgroups

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Driver is who makes cgroups. The agent and the container runtime must have the same.
type Driver string

// The drivers, as kubelets call them.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// classes are the classes of pods, as their cgroups are looked through.
var classes = []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort}

// group names a cgroup by its parts below the root.
type group []string

// allPods is the group with those of all pods in it.
func allPods() group { return group{"kubepods"} }

func ofClass(class corev1.PodQOSClass) group {
	if class == corev1.PodQOSGuaranteed {
		return allPods()
	}
	return append(allPods(), strings.ToLower(string(class)))
}

const podPrefix = "pod"

func ofPod(class corev1.PodQOSClass, uid types.UID) group {
	return append(ofClass(class), podPrefix+string(uid))
}

// layout says where groups are, in the way of a driver.
type layout struct {
	driver Driver
	root   []string
}

// longestUnit is how long the name of a unit of systemd can be; longestUID how long the UID of a pod is at most.
const (
	longestUnit = 255
	longestUID  = 36
)

// newLayout lays out the groups below root, which is the driver's own default if it is empty.
func newLayout(driver Driver, root, node string) (layout, error) {
	if root == "" && driver == Cgroupfs {
		root = "/everynode/" + node
	}
	l := layout{driver: driver, root: strings.FieldsFunc(root, func(r rune) bool { return r == '/' })}
	if driver == Cgroupfs {
		return l, nil
	}
	for _, part := range l.root {
		if strings.Trim(part, "-_.:abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" {
			return l, fmt.Errorf(
				"--cgroup-root %s: %q cannot be a slice of systemd; use letters, figures and . : _ -", root, part,
			)
		}
	}
	if name, _ := l.unit(ofPod(corev1.PodQOSBestEffort,
		types.UID(strings.Repeat("x", longestUID)))); len(name) > longestUnit {
		return l, fmt.Errorf("--cgroup-root %s is too long for the name of a slice of systemd", root)
	}
	return l, nil
}

// path is where the group is in each hierarchy; empty for a root that is the hierarchy's.
func (l layout) path(g group) string {
	parts := append(l.root[:len(l.root):len(l.root)], g...)
	if l.driver == Cgroupfs {
		return path.Join("/", path.Join(parts...))
	}
	var out strings.Builder
	name := ""
	for _, part := range parts {
		name = strings.TrimPrefix(name+"-"+escaped(part), "-")
		out.WriteString("/" + name + sliceSuffix)
	}
	return cmp.Or(out.String(), "/")
}

const sliceSuffix = ".slice"

// escaped is a part of a slice's name. A hyphen would begin the next part.
func escaped(part string) string { return strings.ReplaceAll(part, "-", "_") }

// unit is the name of the group's slice, and of the one that it is in.
func (l layout) unit(g group) (name, parent string) {
	dir, name := path.Split(l.path(g))
	if parent = path.Base(dir); parent == "/" {
		parent = "-" + sliceSuffix
	}
	return name, parent
}

// podIn reads whose a cgroup is, from its name in the group of a class.
func (l layout) podIn(class corev1.PodQOSClass, name string) (types.UID, bool) {
	if l.driver == Cgroupfs {
		uid, ok := strings.CutPrefix(name, podPrefix)
		return types.UID(uid), ok && uid != ""
	}
	above, _ := l.unit(ofClass(class))
	name, isSlice := strings.CutSuffix(name, sliceSuffix)
	uid, ok := strings.CutPrefix(name, strings.TrimSuffix(above, sliceSuffix)+"-"+podPrefix)
	// No UID has an underscore.
	return types.UID(strings.ReplaceAll(uid, "_", "-")), isSlice && ok && uid != ""
}

// ContainerName is what a runtime calls the cgroup of a container or sandbox within its pod's. Runtimes that are not
// known here are taken to do as containerd does.
func ContainerName(driver Driver, runtime, id string) string {
	prefix := ""
	switch {
	case runtime == "cri-o":
		prefix = "crio-"
	case driver == Systemd:
		prefix = "cri-containerd-"
	}
	if driver == Systemd {
		return prefix + id + ".scope"
	}
	return prefix + id
}
