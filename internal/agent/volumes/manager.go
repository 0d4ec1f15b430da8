package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/agent/volumes/removal"
	"github.com/everynode/everynode/internal/agent/volumes/stuck"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/objects/objectversion"
)

// Objects gives the API objects that volumes show. What it returns is shared and not changed.
// A missing object is an error for which apierrors.IsNotFound is true.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// ServiceAccountToken asks the API server for a token of a service account.
	ServiceAccountToken(ctx context.Context, namespace, serviceAccount string,
		request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
	// NodeAllocatable is what pods on this node can use in all; it stands in for limits that a container doesn't set.
	NodeAllocatable() corev1.ResourceList
}

// Drivers mount the volumes that pods ask of storage drivers.
type Drivers interface {
	SetUp(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) error
	// Path is where the volume is on the node.
	Path(podUID types.UID, volume string) string
	// TearDown gives back all volumes of the pod; it may be called again and again.
	TearDown(ctx context.Context, podUID types.UID) error
}

// Image is the image of an image volume.
type Image struct {
	// Ref is the runtime's name of it, Digest what the pod's status says of it.
	Ref, Digest string
}

// Config says where volumes are kept and what they show.
type Config struct {
	// RootDir holds one directory per pod, named by its UID. It is made when missing.
	RootDir string
	// Objects is where config maps, secrets and tokens come from.
	Objects Objects
	// Claims gives the volumes of claims; nil for none.
	Claims Claims
	// Drivers mount volumes of storage drivers; nil for none.
	Drivers Drivers
	// Image makes the image of an image volume present; without it such volumes fail.
	Image func(ctx context.Context, pod *corev1.Pod, source *corev1.ImageVolumeSource) (Image, error)
	// Env computes a container's environment for subPathExpr. Without it a subPathExpr is an error.
	Env func(pod *corev1.Pod, container *corev1.Container) ([]env.Var, error)
	// RefreshPeriod is the time between two looks at changing content; the default is a minute.
	RefreshPeriod time.Duration
	// OnRefreshError is told when content could not be brought up to date; the old content stays. It is called
	// for several pods at once. May be nil.
	OnRefreshError func(pod *corev1.Pod, err error)
	// ContentShown is told that volumes show what Shows says; it must not block, and may be nil.
	ContentShown func(podUID types.UID)
	// Tokens are those of an earlier run. TokenIssued is told of every new one that a pod gets, and whether it is the
	// first of its kind; it must not block, and may be nil.
	Tokens      []Token
	TokenIssued func(first bool)
	// Clock tells the time; the default is the real one.
	Clock clock.WithTicker
}

// Manager keeps the volumes of this node's pods.
type Manager struct {
	cfg    Config
	tokens *tokenCache
	// calls are those that may wait for ever for another machine; foreign is what is called.
	calls   *stuck.Calls
	foreign foreign

	// refreshing counts the pods whose drivers are asked to bring volumes up to date.
	refreshing sync.WaitGroup

	mu   sync.Mutex
	pods map[types.UID]*podState
	// changed are the pods that PodChanged was told of and nobody looked at yet; poke wakes who does.
	changed []*podState
	poke    chan struct{}
}

// podState serializes the work on one pod.
type podState struct {
	mu  sync.Mutex
	pod *corev1.Pod // the newest one set up, with the volumes that it is to show; nil when none was
	to  *content.Pointing
	// lacks is why not all can be shown that pod is pointed at; meanwhile its volumes show what they did.
	lacks error
	// newest is what PodChanged was told last, nil once that is looked at. The manager's mu guards it, and shows.
	newest *corev1.Pod
	shows  Shown
	// images are those of the image volumes.
	images map[string]Image
	// claimed are the volumes of claims, by the pod volume's name.
	claimed map[string]*claimed
}

// Shown is what came of pointing a pod's volumes at other copies than its spec names: the Key of the
// content.Pointing, "" for none, and why they do not show them.
type Shown struct {
	Key string
	Err error
}

// New returns a Manager. It does nothing before its methods are called.
func New(cfg Config) *Manager {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.RefreshPeriod == 0 {
		cfg.RefreshPeriod = time.Minute
	}
	return &Manager{cfg: cfg, tokens: newTokenCache(cfg), calls: stuck.New(cfg.Clock, patience),
		foreign: newForeign(), pods: map[types.UID]*podState{}, poke: make(chan struct{}, 1)}
}

// SetUp makes every volume of pod ready; volumes that are ready already are brought up to date.
//
// All volumes are tried. The error wraps one error per volume that failed (it has Unwrap() []error), each in the
// kubelet's words: MountVolume.SetUp failed for volume "v" : configmap "c" not found.
func (m *Manager) SetUp(ctx context.Context, pod *corev1.Pod) error {
	if err := checkUID(pod.UID); err != nil {
		return err
	}
	state := m.state(pod.UID)
	state.mu.Lock()
	defer state.mu.Unlock()
	if err := state.take(pod); err != nil {
		return err
	}
	pod = state.pod
	state.lacks = m.lack(ctx, state, m.cfg.Objects)
	var errs []error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if err := m.setUpVolume(ctx, state, volume); err != nil {
			errs = append(errs, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", volume.Name, err))
		}
	}
	return m.note(state, errors.Join(errs...))
}

// take has the volumes show what the pod says, unless what is known of it is newer: who sets up volumes may have
// looked at it before.
func (s *podState) take(pod *corev1.Pod) error {
	if s.pod != nil && objectversion.Older(pod.ResourceVersion, s.pod.ResourceVersion) {
		return nil
	}
	shown, to, err := content.Shown(pod)
	if err != nil {
		return err
	}
	s.pod, s.to = shown, to
	return nil
}

// Shows returns what came of pointing the pod's volumes at other copies.
func (m *Manager) Shows(podUID types.UID) Shown {
	m.mu.Lock()
	defer m.mu.Unlock()
	if state := m.pods[podUID]; state != nil {
		return state.shows
	}
	return Shown{}
}

// note keeps what came of pointing the volumes of state.pod, tells of it if that is news, and returns it.
func (m *Manager) note(state *podState, err error) error {
	if state.to == nil {
		return err
	}
	if err == nil {
		err = state.lacks
	}
	is := Shown{Key: state.to.Key(), Err: err}
	m.mu.Lock()
	was := state.shows
	state.shows = is
	m.mu.Unlock()
	if m.cfg.ContentShown != nil && (was.Key != is.Key || fmt.Sprint(was.Err) != fmt.Sprint(is.Err)) {
		m.cfg.ContentShown(state.pod.UID)
	}
	return err
}

func (m *Manager) setUpVolume(ctx context.Context, state *podState, volume *corev1.Volume) error {
	pod := state.pod
	if err := checkName(volume.Name); err != nil {
		return err
	}
	switch {
	case volume.HostPath != nil:
		return m.ask(ctx, pod.UID, "path "+volume.HostPath.Path, func() error { return m.foreign.hostPath(volume.HostPath) })
	case volume.EmptyDir != nil:
		return m.setUpEmptyDir(pod, volume)
	case m.isDrivers(volume):
		return m.setUpDrivers(ctx, pod, volume)
	case isContent(volume):
		return m.setUpContent(ctx, state, volume, m.cfg.Objects)
	case isClaimed(volume) && m.cfg.Claims != nil:
		return m.setUpClaimed(ctx, state, volume)
	case volume.Image != nil && m.cfg.Image != nil:
		return m.setUpImage(ctx, state, volume)
	case volume.VolumeSource == corev1.VolumeSource{}:
		// A volume without a source is an empty directory.
		return m.setUpEmptyDir(pod, &corev1.Volume{
			Name:         volume.Name,
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		})
	}
	return errors.New(
		"no volume plugin matched: this node has volumes of the kinds hostPath, emptyDir, configMap, secret, downwardAPI, " +
			"projected, image, csi, persistentVolumeClaim and ephemeral",
	)
}

// setUpImage has the image present, once: a container that starts again sees what the others see.
func (m *Manager) setUpImage(ctx context.Context, state *podState, volume *corev1.Volume) error {
	if _, ok := state.images[volume.Name]; ok {
		return nil
	}
	ref, err := m.cfg.Image(ctx, state.pod, volume.Image)
	if err != nil {
		return err
	}
	if state.images == nil {
		state.images = map[string]Image{}
	}
	state.images[volume.Name] = ref
	return nil
}

// TearDown unmounts and removes everything that the pod has on this node. It may be called for any UID, in any state,
// again and again; an error means that something is left and a later call will try again.
func (m *Manager) TearDown(ctx context.Context, podUID types.UID) error {
	if err := checkUID(podUID); err != nil {
		return err
	}
	state := m.state(podUID)
	m.calls.GiveUp(string(podUID)) // who holds the lock may wait for a file system
	state.mu.Lock()
	defer state.mu.Unlock()
	state.pod, state.to, state.lacks, state.images, state.claimed = nil, nil, nil, nil, nil
	m.tokens.forget(podUID)
	dir := m.podDir(podUID)
	if err := m.unmount(ctx, podUID, dir); err != nil {
		return err
	}
	if err := removal.Tree(dir); err != nil {
		return fmt.Errorf("tear down volumes of pod %s: %w", podUID, err)
	}
	m.mu.Lock()
	delete(m.pods, podUID)
	m.mu.Unlock()
	klog.FromContext(ctx).V(3).Info("Removed volumes of pod", "podUID", podUID)
	return nil
}

// unmount unmounts all that the pod's volumes have mounted. What is still being set up is given up.
func (m *Manager) unmount(ctx context.Context, uid types.UID, dir string) error {
	m.calls.GiveUp(string(uid))
	owner := "the end of " + uid // Nobody gives that up.
	err := m.ask(ctx, owner, "unmounting what is mounted in volumes", func() error { return m.foreign.unmount(dir) })
	if err != nil {
		return fmt.Errorf("tear down volumes of pod %s: %w", uid, err)
	}
	if m.cfg.Drivers == nil {
		return nil
	}
	return m.calls.Do(ctx, string(owner), "unmounting volumes of drivers", func(ctx context.Context) error {
		return m.cfg.Drivers.TearDown(ctx, uid)
	})
}

// Sweep tears down every pod that has a directory here and is not live. It goes on after errors and returns them
// joined.
func (m *Manager) Sweep(ctx context.Context, live func(podUID types.UID) bool) error {
	entries, err := os.ReadDir(m.cfg.RootDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list pods with volumes: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		uid := types.UID(entry.Name())
		if !entry.IsDir() || live(uid) {
			continue
		}
		errs = append(errs, m.TearDown(ctx, uid))
	}
	return errors.Join(errs...)
}

// Run keeps the changing content of all pods up to date until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	defer m.refreshing.Wait()
	m.refreshing.Go(func() { m.followChanges(ctx) })
	wait.JitterUntilWithContext(ctx, m.refresh, m.cfg.RefreshPeriod, 0.5, true)
	return nil
}

func (m *Manager) refresh(ctx context.Context) {
	m.mu.Lock()
	states := make([]*podState, 0, len(m.pods))
	for _, state := range m.pods {
		states = append(states, state)
	}
	m.mu.Unlock()
	objects := newRound(m.cfg.Objects)
	for _, state := range states {
		if ctx.Err() != nil {
			return
		}
		m.refreshPod(ctx, state, objects)
	}
}

// refreshPod passes over a pod that somebody works on: what that is may wait for long for a storage driver.
func (m *Manager) refreshPod(ctx context.Context, state *podState, objects reader) {
	if !state.mu.TryLock() {
		return
	}
	pod := state.pod
	if pod == nil {
		state.mu.Unlock()
		return
	}
	m.refreshContent(ctx, state, objects)
	if !slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool { return m.isDrivers(&volume) }) {
		state.mu.Unlock()
		return
	}
	// A driver that hangs holds up its own pod only, which stays locked meanwhile.
	m.refreshing.Go(func() {
		defer state.mu.Unlock()
		_ = m.refreshVolumes(ctx, pod, m.isDrivers, func(volume *corev1.Volume) error {
			return m.setUpDrivers(ctx, pod, volume)
		}) // it has told
	})
}

// PodChanged has content that shows the pod itself, such as its labels, brought up to date soon. It waits for nothing,
// and does nothing for a pod whose volumes were not set up.
func (m *Manager) PodChanged(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.pods[pod.UID]
	if state == nil {
		return
	}
	if state.newest == nil {
		m.changed = append(m.changed, state)
	}
	state.newest = pod
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// followChanges brings up to date what PodChanged is told of, until ctx ends.
func (m *Manager) followChanges(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.poke:
		}
		m.mu.Lock()
		changed := m.changed
		m.changed = nil
		m.mu.Unlock()
		for _, state := range changed {
			m.refreshing.Go(func() { m.refreshChanged(ctx, state) })
		}
	}
}

// refreshChanged waits for who works on the pod: what he sets up may be older.
func (m *Manager) refreshChanged(ctx context.Context, state *podState) {
	state.mu.Lock()
	defer state.mu.Unlock()
	m.mu.Lock()
	pod := state.newest
	state.newest = nil
	m.mu.Unlock()
	if state.pod == nil {
		return
	}
	if err := state.take(pod); err != nil {
		klog.FromContext(ctx).Error(err, "Could not tell what volumes are to show", "pod", klog.KObj(pod))
		if m.cfg.OnRefreshError != nil {
			m.cfg.OnRefreshError(pod, err)
		}
		return
	}
	m.refreshContent(ctx, state, m.cfg.Objects)
}

// refreshContent brings the content of state.pod up to date, and keeps what came of it.
func (m *Manager) refreshContent(ctx context.Context, state *podState, objects reader) {
	state.lacks = m.lack(ctx, state, objects)
	err := m.refreshVolumes(ctx, state.pod, isContent, func(volume *corev1.Volume) error {
		return m.setUpContent(ctx, state, volume, objects)
	})
	if ctx.Err() == nil { // an agent that ends could do nothing, which says nothing
		_ = m.note(state, err) // it has told
	}
}

func (m *Manager) isDrivers(volume *corev1.Volume) bool {
	return volume.CSI != nil && m.cfg.Drivers != nil
}

// refreshVolumes sets up those volumes of the pod that are of the kind, and tells of errors.
func (m *Manager) refreshVolumes(
	ctx context.Context, pod *corev1.Pod, kind func(*corev1.Volume) bool, setUp func(*corev1.Volume) error,
) error {
	var errs []error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if !kind(volume) {
			continue
		}
		err := setUp(volume)
		if err == nil {
			continue
		}
		err = fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", volume.Name, err)
		errs = append(errs, err)
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not bring a volume up to date", "pod", klog.KObj(pod), "volume", volume.Name)
			if m.cfg.OnRefreshError != nil {
				m.cfg.OnRefreshError(pod, err)
			}
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) state(uid types.UID) *podState {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.pods[uid]
	if state == nil {
		state = &podState{}
		m.pods[uid] = state
	}
	return state
}

func (m *Manager) podDir(uid types.UID) string { return filepath.Join(m.cfg.RootDir, string(uid)) }

// volumeDir is where a volume of this kind (empty-dir, configmap, ...) is kept.
func (m *Manager) volumeDir(uid types.UID, kind, volume string) string {
	return filepath.Join(m.podDir(uid), "volumes", "kubernetes.io~"+kind, volume)
}

func checkUID(uid types.UID) error {
	if err := checkName(string(uid)); err != nil {
		return fmt.Errorf("pod UID: %w", err)
	}
	return nil
}

// checkName refuses what can't be the name of one directory; the API server does too, but here it guards the disk.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("invalid name %q", name)
	}
	return nil
}
