// Package claims is the node's side of dynamic resource allocation: before a pod's containers start it has drivers
// prepare the devices of the pod's ResourceClaims, tells the container runtime their names in the Container Device
// Interface, and has the drivers undo it when the pod has ended.
//
//	Prepare: read the claims, check whose they are ──► note on disk ──► NodePrepareResources ──► note the devices
//	Release: is the pod the last one? ──► NodeUnprepareResources ──► forget
//
// What drivers were asked to prepare is on disk before they are asked: an agent that starts again knows what is to be
// undone. A driver that is away is asked when it is back; the pod stays until then, and so does its claim.
package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/mend"
	"github.com/everynode/everynode/internal/files/wholefile"
)

// callTimeout is how long a driver has to answer.
const callTimeout = 45 * time.Second

// Config says where things are. Every field is needed.
type Config struct {
	// File is where is noted what drivers have prepared.
	File string
	// Claim reads a claim from the API, as it is now.
	Claim func(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error)
	// CDI says whether the container runtime finds devices by their names in the Container Device Interface.
	CDI func(ctx context.Context) (bool, error)
	// Offers are what the node's drivers have published.
	Offers Offers
	Clock  clock.Clock
}

// Manager keeps what drivers have prepared. It is safe for concurrent use.
type Manager struct {
	cfg Config
	// broken is why nothing is known of an earlier life of the agent; nil if it is known.
	broken error

	mu      sync.Mutex
	sockets map[string]string
	known   map[types.UID]*prepared
	held    map[types.UID]chan struct{} // claims about which a driver is asked; closed when that is over
	left    chan struct{}               // that drivers may be away
	saved   []byte                      // what the file holds, nil for none
}

// prepared is a claim that drivers were asked to prepare.
type prepared struct {
	Namespace, Name string
	UID             types.UID
	// Pods use it.
	Pods []types.UID
	// Drivers are those that were asked, with the devices that they prepared.
	Drivers map[string][]given
}

// given is a device that a driver prepared, for these requests of the claim; for all if there are none.
type given struct {
	Requests []string `json:",omitempty"`
	CDI      []string `json:",omitempty"`
}

// New reads what drivers had prepared in an earlier life of the agent.
func New(cfg Config) *Manager {
	m := &Manager{
		cfg:     cfg,
		sockets: map[string]string{},
		known:   map[types.UID]*prepared{},
		held:    map[types.UID]chan struct{}{},
		left:    make(chan struct{}, 1),
	}
	m.someLeft()
	raw, err := os.ReadFile(cfg.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		m.broken = fmt.Errorf("read which devices are prepared: %w", err)
	default:
		m.saved = raw
		if err := json.Unmarshal(raw, &m.known); err != nil {
			m.known = map[types.UID]*prepared{}
			m.broken = fmt.Errorf(
				"read which devices are prepared: %s: %w; remove the file when no pod with a resource claim is left on the node",
				cfg.File, err,
			)
		}
	}
	return m
}

// Problem is why no claim can be prepared; nil if claims can be.
func (m *Manager) Problem() error { return m.broken }

// Register implements plugins.Handler: a driver is there.
func (m *Manager) Register(_ context.Context, name, socket string, versions []string) error {
	if !slices.Contains(versions, draapi.DRAPluginService) {
		return fmt.Errorf(
			"the DRA driver %s at %s speaks %q; what is needed is %s", name, socket, versions, draapi.DRAPluginService,
		)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sockets[name] = socket
	return nil
}

// Deregister implements plugins.Handler: the driver went away.
func (m *Manager) Deregister(_ context.Context, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sockets, name)
	m.someLeft()
}

// Prepare has drivers prepare the devices of the pod's claims. Drivers are asked again for each sandbox: what they did
// may have ended with the machine.
func (m *Manager) Prepare(ctx context.Context, pod *corev1.Pod) error {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	if m.broken != nil {
		return m.broken
	}
	all, err := m.check(ctx, pod)
	if err != nil {
		return err
	}
	for _, claim := range all {
		if err := m.prepare(ctx, pod, claim); err != nil {
			return err
		}
	}
	return nil
}

// check reads the pod's claims, and finds out before any driver is asked whether the pod can have them all.
func (m *Manager) check(ctx context.Context, pod *corev1.Pod) ([]*resourcev1.ResourceClaim, error) {
	var all []*resourcev1.ResourceClaim
	for i := range pod.Spec.ResourceClaims {
		name, own, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name == nil || slices.ContainsFunc(all, func(c *resourcev1.ResourceClaim) bool { return c.Name == *name }) {
			continue
		}
		claim, err := m.cfg.Claim(ctx, pod.Namespace, *name)
		if err != nil {
			return nil, fmt.Errorf("fetch ResourceClaim %s: %w", *name, err)
		}
		if own {
			if err := resourceclaim.IsForPod(pod, claim, false); err != nil {
				return nil, err
			}
		}
		if !resourceclaim.IsReservedForPod(pod, claim, false) {
			return nil, fmt.Errorf(
				"pod %s (%s) is not allowed to use ResourceClaim %s (%s)", pod.Name, pod.UID, claim.Name, claim.UID,
			)
		}
		if claim.Status.Allocation == nil {
			return nil, fmt.Errorf("ResourceClaim %s has no devices", claim.Name)
		}
		for _, driver := range driversOf(claim) {
			if _, err := m.socket(driver); err != nil {
				return nil, err
			}
		}
		all = append(all, claim)
	}
	return all, nil
}

func driversOf(c *resourcev1.ResourceClaim) (out []string) {
	for _, r := range c.Status.Allocation.Devices.Results {
		if !slices.Contains(out, r.Driver) {
			out = append(out, r.Driver)
		}
	}
	return out
}

func (m *Manager) socket(driver string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if socket, ok := m.sockets[driver]; ok {
		return socket, nil
	}
	return "", fmt.Errorf("DRA driver %s is not registered", driver)
}

func (m *Manager) prepare(ctx context.Context, pod *corev1.Pod, c *resourcev1.ResourceClaim) error {
	done, err := m.hold(ctx, c.UID)
	if err != nil {
		return err
	}
	defer done()
	drivers := driversOf(c)
	if err := m.note(func() { m.asked(pod, c, drivers) }); err != nil {
		return err
	}
	about := &draapi.Claim{Namespace: c.Namespace, Uid: string(c.UID), Name: c.Name}
	devices := map[string][]given{}
	for _, driver := range drivers {
		answer, err := call(
			ctx, m, driver,
			func(ctx context.Context, api draapi.DRAPluginClient) (*draapi.NodePrepareResourcesResponse, error) {
				return api.NodePrepareResources(ctx, &draapi.NodePrepareResourcesRequest{Claims: []*draapi.Claim{about}})
			},
		)
		if err != nil {
			return fmt.Errorf("NodePrepareResources of DRA driver %s: %w", driver, err)
		}
		one, ok := answer.Claims[about.Uid]
		if !ok {
			return fmt.Errorf("NodePrepareResources of DRA driver %s skipped ResourceClaim %s", driver, c.Name)
		}
		if one.GetError() != "" {
			return fmt.Errorf("NodePrepareResources of DRA driver %s failed for ResourceClaim %s: %s", driver, c.Name, one.Error)
		}
		devices[driver] = []given{}
		for _, d := range one.GetDevices() {
			devices[driver] = append(devices[driver], given{d.RequestNames, d.CdiDeviceIds})
		}
	}
	return m.note(func() {
		if known := m.known[c.UID]; known != nil {
			known.Drivers = devices
		}
	})
}

// asked notes that a pod's claim is to be prepared. The caller holds mu.
func (m *Manager) asked(pod *corev1.Pod, c *resourcev1.ResourceClaim, drivers []string) {
	known := m.known[c.UID]
	if known == nil {
		known = &prepared{Namespace: c.Namespace, Name: c.Name, UID: c.UID, Drivers: map[string][]given{}}
		m.known[c.UID] = known
	}
	if !slices.Contains(known.Pods, pod.UID) {
		known.Pods = append(known.Pods, pod.UID)
	}
	for _, driver := range drivers {
		if _, ok := known.Drivers[driver]; !ok {
			known.Drivers[driver] = nil
		}
	}
}

// Container returns the names of the container's devices in the Container Device Interface.
func (m *Manager) Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container) ([]string, error) {
	var names []string
	for _, wanted := range c.Resources.Claims {
		found, err := m.of(pod, wanted)
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	can, err := m.cfg.CDI(ctx)
	if err != nil {
		return nil, err
	}
	if !can {
		return nil, fmt.Errorf(
			"the container runtime does not know devices by their CDI names (%s): containerd does from version 1.7 on, with "+
				"enable_cdi in its configuration, "+
				"and by itself from 2.0 on",
			names[0],
		)
	}
	return names, nil
}

// of are the names of the devices of an entry of a pod, or of one request of it.
func (m *Manager) of(pod *corev1.Pod, wanted corev1.ResourceClaim) ([]string, error) {
	i := slices.IndexFunc(pod.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == wanted.Name })
	if i < 0 {
		return nil, fmt.Errorf("the pod has no resource claim %q", wanted.Name)
	}
	name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
	if err != nil || name == nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, known := range m.known {
		if known.Namespace != pod.Namespace || known.Name != *name || !slices.Contains(known.Pods, pod.UID) {
			continue
		}
		var names []string
		for driver, devices := range known.Drivers {
			if devices == nil {
				return nil, fmt.Errorf("ResourceClaim %s is not prepared by DRA driver %s", *name, driver)
			}
			for _, d := range devices {
				if d.serves(wanted.Request) {
					names = append(names, d.CDI...)
				}
			}
		}
		slices.Sort(names)
		return names, nil
	}
	return nil, fmt.Errorf("ResourceClaim %s is not prepared", *name)
}

// serves says whether the device is for a request; "" is for all of them. The alternative that was chosen is named
// behind a slash.
func (g given) serves(request string) bool {
	return request == "" || len(g.Requests) == 0 || slices.ContainsFunc(g.Requests, func(r string) bool {
		return r == request || strings.HasPrefix(r, request+"/")
	})
}

// Release has drivers undo what they did for the pod, unless others use the same claim. Until they have, it fails.
func (m *Manager) Release(ctx context.Context, pod types.UID) error {
	m.mu.Lock()
	var uses []types.UID
	for uid, known := range m.known {
		if slices.Contains(known.Pods, pod) {
			uses = append(uses, uid)
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, uid := range uses {
		errs = append(errs, m.release(ctx, pod, uid))
	}
	return errors.Join(errs...)
}

func (m *Manager) release(ctx context.Context, pod, uid types.UID) error {
	done, err := m.hold(ctx, uid)
	if err != nil {
		return err
	}
	defer done()
	m.mu.Lock()
	known := m.known[uid]
	if known == nil || !slices.Contains(known.Pods, pod) {
		m.mu.Unlock()
		return nil
	}
	about := &draapi.Claim{Namespace: known.Namespace, Uid: string(uid), Name: known.Name}
	last := len(known.Pods) == 1
	var drivers []string
	for driver := range known.Drivers {
		drivers = append(drivers, driver)
	}
	m.mu.Unlock()
	if !last {
		return m.note(func() {
			known.Pods = slices.DeleteFunc(known.Pods, func(p types.UID) bool { return p == pod })
		})
	}
	for _, driver := range drivers {
		answer, err := call(
			ctx, m, driver,
			func(ctx context.Context, api draapi.DRAPluginClient) (*draapi.NodeUnprepareResourcesResponse, error) {
				return api.NodeUnprepareResources(ctx, &draapi.NodeUnprepareResourcesRequest{Claims: []*draapi.Claim{about}})
			},
		)
		if err != nil {
			return fmt.Errorf("NodeUnprepareResources of DRA driver %s for ResourceClaim %s: %w", driver, about.Name, err)
		}
		one, ok := answer.Claims[about.Uid]
		if !ok {
			return fmt.Errorf("NodeUnprepareResources of DRA driver %s skipped ResourceClaim %s", driver, about.Name)
		}
		if one.GetError() != "" {
			return fmt.Errorf(
				"NodeUnprepareResources of DRA driver %s failed for ResourceClaim %s: %s", driver, about.Name, one.Error,
			)
		}
	}
	return m.note(func() { delete(m.known, uid) })
}

// Sweep releases what pods have that are no more.
func (m *Manager) Sweep(ctx context.Context, remains func(types.UID) bool) error {
	m.mu.Lock()
	var gone []types.UID
	for _, known := range m.known {
		for _, pod := range known.Pods {
			if !slices.Contains(gone, pod) {
				gone = append(gone, pod)
			}
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, pod := range gone {
		if !remains(pod) {
			errs = append(errs, m.Release(ctx, pod))
		}
	}
	return errors.Join(errs...)
}

// hold waits until nobody else asks drivers about the claim.
func (m *Manager) hold(ctx context.Context, claim types.UID) (done func(), err error) {
	for {
		m.mu.Lock()
		other := m.held[claim]
		if other == nil {
			mine := make(chan struct{})
			m.held[claim] = mine
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				delete(m.held, claim)
				m.mu.Unlock()
				close(mine)
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another pod's call about the same resource claim: %w", ctx.Err())
		}
	}
}

// note changes what is known, and writes it down.
func (m *Manager) note(change func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	raw, err := json.Marshal(m.known)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(m.cfg.File), 0o750)
	}
	if err == nil {
		err = wholefile.Write(m.cfg.File, 0o600, wholefile.Bytes(raw))
	}
	if err != nil {
		return fmt.Errorf("note which devices are prepared: %w", err)
	}
	m.saved = raw
	return nil
}

// Mend implements mend.Part.
func (m *Manager) Mend() (mended []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil || m.saved == nil {
		return nil, nil
	}
	return mend.Files(mend.File{Path: m.cfg.File, Mode: 0o600, Content: m.saved})
}

// call asks a driver.
func call[T any](
	ctx context.Context, m *Manager, driver string, ask func(context.Context, draapi.DRAPluginClient) (T, error),
) (answer T, err error) {
	socket, err := m.socket(driver)
	if err != nil {
		return answer, err
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return answer, fmt.Errorf("connect to the DRA driver at %s: %w", socket, err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return ask(ctx, draapi.NewDRAPluginClient(conn))
}
