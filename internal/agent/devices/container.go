package devices

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/everynode/everynode/internal/agent/devices/ledger"
)

// Pair is a name and a value.
type Pair struct{ Name, Value string }

// Mount is a path of the node that a container sees.
type Mount struct {
	ContainerPath, HostPath string
	ReadOnly                bool
}

// Node is a device file of the node that a container may use; Permissions are of r, w and m.
type Node struct{ ContainerPath, HostPath, Permissions string }

// Options are what a container needs to use its devices.
type Options struct {
	Env         []Pair
	Annotations map[string]string
	Mounts      []Mount
	Nodes       []Node
	// CDI are names of devices in the Container Device Interface.
	CDI []string
}

// Container returns what the container needs to use its devices, after their plugins did what they must before it
// starts.
func (m *Manager) Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (Options, error) {
	mine := func(n ledger.Need) bool { return n.Container == c.Name }
	if m.broken != nil && slices.ContainsFunc(ledger.Needs(pod, ledger.IsExtended), mine) {
		return Options{}, m.broken
	}
	needs := slices.DeleteFunc(m.needs(pod), func(n ledger.Need) bool { return !mine(n) })
	if err := m.allocate(ctx, pod, m.missing(pod, needs)); err != nil {
		return Options{}, err
	}
	m.mu.Lock()
	grants := slices.DeleteFunc(m.ledger.Of(pod.UID), func(g ledger.Grant) bool { return g.Container != c.Name })
	m.mu.Unlock()
	if len(grants) == 0 {
		return Options{}, nil
	}
	if err := m.saveNow(); err != nil { // the last time may have failed
		return Options{}, err
	}
	var out Options
	for i := range grants {
		if err := m.prepare(ctx, &grants[i]); err != nil {
			return Options{}, err
		}
		if err := out.add(&grants[i]); err != nil {
			return Options{}, err
		}
	}
	return out, m.checkCDI(ctx, &out)
}

// missing are the needs of a container that was not given what it asks for: its resource became a device plugin's after
// the pod came.
func (m *Manager) missing(pod *corev1.Pod, needs []ledger.Need) []ledger.Need {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(needs, func(n ledger.Need) bool {
		g, has := m.ledger.Get(pod.UID, n.Container, n.Resource)
		return has && g.Answer != nil
	})
}

// prepare has the plugin do what it must. Devices of an earlier life are not used before their plugin came again: after
// the node started again, it may have to make them first.
func (m *Manager) prepare(ctx context.Context, g *ledger.Grant) error {
	m.mu.Lock()
	p := m.plugins[g.Resource]
	m.mu.Unlock()
	if p == nil {
		return fmt.Errorf("the device plugin of %s has not registered yet", g.Resource)
	}
	if !p.options.GetPreStartRequired() {
		return nil
	}
	if err := p.prepare(ctx, g.Devices); err != nil {
		return fmt.Errorf("prepare the devices of %s: %w", g.Resource, err)
	}
	return nil
}

// add takes in what a plugin said about a grant. What two plugins say about the same thing is taken from the first.
func (o *Options) add(g *ledger.Grant) error {
	var answer pluginapi.ContainerAllocateResponse
	if err := proto.Unmarshal(g.Answer, &answer); err != nil {
		return fmt.Errorf("read what the device plugin of %s said: %w", g.Resource, err)
	}
	for _, name := range slices.Sorted(maps.Keys(answer.Envs)) {
		if !slices.ContainsFunc(o.Env, func(p Pair) bool { return p.Name == name }) {
			o.Env = append(o.Env, Pair{name, answer.Envs[name]})
		}
	}
	for name, value := range answer.Annotations {
		if o.Annotations == nil {
			o.Annotations = map[string]string{}
		}
		if _, ok := o.Annotations[name]; !ok {
			o.Annotations[name] = value
		}
	}
	for _, mount := range answer.Mounts {
		if !slices.ContainsFunc(o.Mounts, func(have Mount) bool { return have.ContainerPath == mount.ContainerPath }) {
			o.Mounts = append(o.Mounts, Mount{mount.ContainerPath, mount.HostPath, mount.ReadOnly})
		}
	}
	for _, d := range answer.Devices {
		if !slices.ContainsFunc(o.Nodes, func(have Node) bool { return have.ContainerPath == d.ContainerPath }) {
			o.Nodes = append(o.Nodes, Node{d.ContainerPath, d.HostPath, d.Permissions})
		}
	}
	for _, d := range answer.CdiDevices {
		if !slices.Contains(o.CDI, d.Name) {
			o.CDI = append(o.CDI, d.Name)
		}
	}
	return nil
}

// checkCDI refuses devices that the runtime would silently leave out. A plugin that gives them in another way too is
// left alone.
func (m *Manager) checkCDI(ctx context.Context, o *Options) error {
	if len(o.CDI) == 0 || len(o.Nodes)+len(o.Mounts)+len(o.Env)+len(o.Annotations) > 0 {
		return nil
	}
	can, err := m.cfg.CDI(ctx)
	if err != nil {
		return err
	}
	if !can {
		return fmt.Errorf(
			"the container runtime does not know devices by their CDI names (%s): containerd does from version 1.7 on, with "+
				"enable_cdi in its configuration, "+
				"and by itself from 2.0 on",
			o.CDI[0],
		)
	}
	return nil
}
