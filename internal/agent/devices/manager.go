package devices

import (
	"context"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/devices/ledger"
)

// Config says where device plugins are met. Every field is needed.
type Config struct {
	// Dir is the folder of the plugins' sockets, /var/lib/kubelet/device-plugins on nodes.
	Dir string
	// Changed is told when the node has more or less of a resource. It must not block.
	Changed func()
	// CDI says whether the container runtime finds devices by their names in the Container Device Interface.
	CDI   func(ctx context.Context) (bool, error)
	Clock clock.Clock
}

// Manager keeps the node's devices. It is safe for concurrent use.
type Manager struct {
	cfg Config
	// broken is why nothing is known about what pods have; nil if it is known.
	broken error
	// forgot says that nobody knows either which resources the node had.
	forgot bool

	mu      sync.Mutex
	ledger  *ledger.Ledger
	plugins map[string]*plugin
	// saved is what the checkpoint holds.
	saved []byte
	// watching counts the connections to plugins; they end with life, which is nil before Run.
	watching sync.WaitGroup
	life     context.Context //nolint:containedctx // Given to Run; calls of plugins end long before.
}

// New reads what pods have of an earlier life of the agent; Run does the rest.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, ledger: ledger.New(), plugins: map[string]*plugin{}}
	m.broken = m.load()
	return m
}

// Problem is why no device can be given to a pod; nil if devices can be.
func (m *Manager) Problem() error { return m.broken }

// Forgot says that nothing is known of an earlier life of the agent: what others heard of the node's devices then is
// not true any more.
func (m *Manager) Forgot() bool { return m.forgot }

// Remember notes that the others know by now: another life of the agent begins with what there is from now on. What
// cannot be read stays, and stays forgotten.
func (m *Manager) Remember() {
	if m.broken != nil {
		return
	}
	err := os.MkdirAll(m.cfg.Dir, 0o750)
	if err == nil {
		err = m.saveNow()
	}
	if err != nil {
		klog.Background().Error(err, "Could not save which devices are there")
	}
}

// Provides says whether the resource is one of device plugins.
func (m *Manager) Provides(name corev1.ResourceName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ledger.Knows(string(name))
}

// Totals is how much the node has of the resources of device plugins, and how much of that pods can have.
func (m *Manager) Totals() (capacity, allocatable corev1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ledger.Expire(m.cfg.Clock.Now()) {
		m.note()
	}
	totals := m.ledger.Totals()
	if len(totals) == 0 {
		return nil, nil
	}
	capacity, allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	for name, t := range totals {
		capacity[corev1.ResourceName(name)] = *resource.NewQuantity(t.Capacity, resource.DecimalSI)
		allocatable[corev1.ResourceName(name)] = *resource.NewQuantity(t.Allocatable, resource.DecimalSI)
	}
	return capacity, allocatable
}

// Free takes back what the pod has.
func (m *Manager) Free(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ledger.Free(pod) {
		m.note()
	}
}

// Sweep takes back what pods have that are not live.
func (m *Manager) Sweep(live func(types.UID) bool) {
	m.mu.Lock()
	grants := m.ledger.Grants()
	m.mu.Unlock()
	for _, g := range grants {
		if !live(g.Pod) {
			m.Free(g.Pod)
		}
	}
}

// note saves what need not be on disk at once: if it fails, the next time makes up for it, and an agent that starts
// again in between takes the devices back when it finds the pod gone. The caller holds mu.
func (m *Manager) note() {
	if err := m.save(); err != nil {
		klog.Background().Error(err, "Could not save which devices are there")
	}
}

// Admit gives the pod's containers the devices that they ask for, once. The error says to the user why they cannot have
// them, and the pod has none then.
func (m *Manager) Admit(ctx context.Context, pod *corev1.Pod) error {
	if m.broken != nil && asks(pod) {
		return m.broken
	}
	err := m.allocate(ctx, pod, m.needs(pod))
	if err != nil {
		m.Free(pod.UID)
	}
	return err
}

// asks says whether the pod wants a resource that could be a device plugin's.
func asks(pod *corev1.Pod) bool {
	return len(ledger.Needs(pod, ledger.IsExtended)) > 0
}

func (m *Manager) needs(pod *corev1.Pod) []ledger.Need {
	m.mu.Lock()
	defer m.mu.Unlock()
	return ledger.Needs(pod, m.ledger.Knows)
}

// allocate gives the pod what is needed, one after the other, and saves it.
func (m *Manager) allocate(ctx context.Context, pod *corev1.Pod, needs []ledger.Need) error {
	if len(needs) == 0 {
		return nil
	}
	for _, n := range needs {
		if err := m.give(ctx, pod, n); err != nil {
			return err
		}
	}
	return m.saveNow()
}

// give sees to it that the container has what it needs. The devices are the pod's while the plugin is asked.
func (m *Manager) give(ctx context.Context, pod *corev1.Pod, n ledger.Need) error {
	choice, p, err := m.choose(pod.UID, n)
	if err != nil || choice.Has {
		return err
	}
	var preferred []string
	if p.options.GetGetPreferredAllocationAvailable() && len(choice.Must) < choice.Amount {
		if preferred, err = p.prefer(ctx, choice); err != nil {
			return err
		}
	}
	m.mu.Lock()
	if choice, err = m.ledger.Choose(pod.UID, n); err != nil { // others took some meanwhile
		m.mu.Unlock()
		return err
	}
	grant := ledger.Grant{Pod: pod.UID, Container: n.Container, Resource: n.Resource, Devices: choice.Pick(preferred)}
	m.ledger.Put(grant)
	m.mu.Unlock()
	grant.Answer, err = p.allocate(ctx, grant.Devices)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.ledger.Drop(grant)
		return err
	}
	m.ledger.Put(grant)
	return nil
}

func (m *Manager) choose(pod types.UID, n ledger.Need) (ledger.Choice, *plugin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	choice, err := m.ledger.Choose(pod, n)
	if err != nil || choice.Has {
		return choice, nil, err
	}
	p := m.plugins[n.Resource]
	if p == nil {
		return ledger.Choice{}, nil, fmt.Errorf("unknown Device Plugin %s", n.Resource)
	}
	return choice, p, nil
}
