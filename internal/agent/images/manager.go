package images

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/credentialprovider"
)

// Reasons for which an image is not present, as a container's status gives them.
const (
	reasonPull       = "ErrImagePull"
	reasonNeverPull  = "ErrImageNeverPull"
	reasonBadName    = "InvalidImageName"
	reasonInspection = "ImageInspectError"
)

// Error says why an image is not present.
type Error struct{ Reason, Message string }

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Image is an image that is present.
type Image struct {
	// Ref is the runtime's identifier for it; Digest is one that says what a registry has, as the image ID of a container
	// does, and the same as Ref where the node knows none.
	Ref, Digest string
	// UID is the numeric user it runs as, nil if it names one, in User, or is silent.
	UID  *int64
	User string
}

// Recorder tells the user what happens, as an event about a container.
type Recorder func(pod *corev1.Pod, container, eventType, reason, message string)

// Secrets reads pull secrets; a missing one is an error for which apierrors.IsNotFound is true.
type Secrets func(ctx context.Context, namespace, name string) (*corev1.Secret, error)

// Programs say with which credentials an image is pulled, a name without tag and digest; credentialprovider.Programs
// do. The error says which of them failed, and comes beside what the others said.
type Programs interface {
	Ask(ctx context.Context, image string) ([]credentialprovider.Credentials, error)
}

// Config is what a Manager needs; every field up to Clock must be set.
type Config struct {
	Service internalapi.ImageManagerService
	Secrets Secrets
	Record  Recorder
	Clock   clock.PassiveClock
	// LoginFile is the node's own docker configuration, with credentials for the images of all its pods.
	LoginFile string
	// Programs are asked for credentials too; nil for none.
	Programs Programs
	// MaxPulls is how many pulls there are at one time, of all registries and however long they take; 0 for a few from
	// each registry.
	MaxPulls int
}

// maxPulls bounds the pulls from one registry at one time, so that a node that starts does not choke its disk. A pull
// that takes longer than pullTurn does not count any more: it may hang, and must not keep the others waiting.
const (
	maxPulls = 5
	pullTurn = time.Minute
	// missingPatience is how long it is looked for pull secrets that are not needed.
	missingPatience = 2 * time.Second
)

// Manager makes images present. It is safe for concurrent use.
type Manager struct {
	cfg Config
	// turn is pullTurn, but in tests.
	turn time.Duration

	mu    sync.Mutex
	pulls map[string]*pull
	// slots are the places for pulls, by registry.
	slots map[string]chan struct{}
}

// pull is one pull under way. Its result may be read once done is closed.
type pull struct {
	done   chan struct{}
	cancel context.CancelFunc
	// waiters counts who would use the result; the last to leave cancels the pull.
	waiters int
	began   time.Time
	ref     string
	err     error
}

// New returns a Manager.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, turn: pullTurn, slots: map[string]chan struct{}{}, pulls: map[string]*pull{}}
}

// Ensure makes the container's image present and returns it. The error is an *Error, or ctx's.
func (m *Manager) Ensure(ctx context.Context, pod *corev1.Pod, container *corev1.Container) (Image, error) {
	name, err := normalize(container.Image)
	if err != nil {
		return Image{}, m.fail(pod, container, reasonBadName, "InspectFailed",
			fmt.Sprintf("Failed to apply default image tag %q: %v", container.Image, err))
	}
	image, err := m.inspect(ctx, name)
	if err != nil {
		return Image{}, m.fail(pod, container, reasonInspection, "InspectFailed",
			fmt.Sprintf("Failed to inspect image %q: %s", container.Image, text(err)))
	}
	policy := pullPolicy(container)
	switch {
	case image != nil && policy != corev1.PullAlways:
		m.tellMissing(pod, m.missing(ctx, pod))
		m.cfg.Record(pod, container.Name, corev1.EventTypeNormal, "Pulled",
			fmt.Sprintf("Container image %q already present on machine", container.Image))
		return *image, nil
	case policy == corev1.PullNever:
		return Image{}, m.fail(pod, container, reasonNeverPull, reasonNeverPull,
			fmt.Sprintf("Container image %q is not present with pull policy of Never", container.Image))
	}
	return m.pullAndTell(ctx, pod, container, name)
}

func (m *Manager) pullAndTell(ctx context.Context, pod *corev1.Pod, container *corev1.Container,
	name string) (Image, error) {
	creds, err := m.credentials(ctx, pod, name)
	m.tellMissing(pod, creds.missing)
	if err != nil {
		return Image{}, m.fail(
			pod, container, reasonPull, "Failed", fmt.Sprintf("Failed to pull image %q: %v", container.Image, err),
		)
	}
	m.cfg.Record(pod, container.Name, corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", container.Image))
	asked := m.cfg.Clock.Now()
	p, err := m.pull(ctx, name, creds.auths)
	if ctx.Err() != nil {
		return Image{}, ctx.Err()
	}
	if err != nil {
		err = creds.explain(err)
		m.cfg.Record(pod, container.Name, corev1.EventTypeWarning, "Failed",
			fmt.Sprintf("Failed to pull image %q: %s", container.Image, text(err)))
		m.cfg.Record(pod, container.Name, corev1.EventTypeWarning, "Failed", "Error: "+reasonPull)
		return Image{}, &Error{Reason: reasonPull, Message: text(err)}
	}
	now := m.cfg.Clock.Now()
	resp, err := m.cfg.Service.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: p.ref}, false)
	if err != nil || resp.Image == nil {
		return Image{}, m.fail(pod, container, reasonInspection, "InspectFailed",
			fmt.Sprintf("Failed to inspect image %q: pulled as %s, and then not found: %s", container.Image, p.ref, text(err)))
	}
	m.cfg.Record(pod, container.Name, corev1.EventTypeNormal, "Pulled",
		fmt.Sprintf("Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.", container.Image,
			now.Sub(p.began).Truncate(time.Millisecond), now.Sub(asked).Truncate(time.Millisecond), resp.Image.Size))
	return describe(resp.Image, name), nil
}

// tellMissing tells that pull secrets do not exist, also where the image is there already: the next pull may need them.
func (m *Manager) tellMissing(pod *corev1.Pod, missing []string) {
	if len(missing) == 0 {
		return
	}
	m.cfg.Record(pod, "", corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret", fmt.Sprintf(
		"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.",
		strings.Join(missing, ", ")))
}

// missing are the pull secrets of the pod that do not exist, as far as that can be told soon: nothing depends on it
// yet.
func (m *Manager) missing(ctx context.Context, pod *corev1.Pod) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, missingPatience)
	defer cancel()
	for _, ref := range pod.Spec.ImagePullSecrets {
		if _, err := m.cfg.Secrets(ctx, pod.Namespace, ref.Name); apierrors.IsNotFound(err) {
			names = append(names, ref.Name)
		}
	}
	return names
}

// fail records the event and returns the error for the container's status.
func (m *Manager) fail(pod *corev1.Pod, container *corev1.Container, reason, event, message string) *Error {
	m.cfg.Record(pod, container.Name, corev1.EventTypeWarning, event, message)
	m.cfg.Record(pod, container.Name, corev1.EventTypeWarning, "Failed", "Error: "+reason)
	return &Error{Reason: reason, Message: message}
}

// pull pulls the image, or waits for a pull of it with the same credentials that is under way.
func (m *Manager) pull(ctx context.Context, name string, auths []*runtimeapi.AuthConfig) (*pull, error) {
	key := pullKey(name, auths)
	m.mu.Lock()
	p, ok := m.pulls[key]
	if !ok {
		// The pull outlives the pod that asked first, as long as another waits for it.
		pullCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		p = &pull{done: make(chan struct{}), cancel: cancel, began: m.cfg.Clock.Now()}
		m.pulls[key] = p
		go m.run(pullCtx, key, p, name, auths)
	}
	p.waiters++
	m.mu.Unlock()
	defer m.leave(key, p)
	select {
	case <-p.done:
		return p, p.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// leave cancels a pull that nobody waits for any more.
func (m *Manager) leave(key string, p *pull) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.waiters--
	if p.waiters == 0 {
		p.cancel()
		if m.pulls[key] == p {
			delete(m.pulls, key)
		}
	}
}

func (m *Manager) run(ctx context.Context, key string, p *pull, name string, auths []*runtimeapi.AuthConfig) {
	defer func() {
		m.mu.Lock()
		if m.pulls[key] == p {
			delete(m.pulls, key)
		}
		m.mu.Unlock()
		close(p.done)
	}()
	leave, err := m.enter(ctx, name)
	if err != nil {
		p.err = err
		return
	}
	defer leave()
	p.began = m.cfg.Clock.Now()
	var failures []string
	for _, auth := range auths {
		p.ref, p.err = m.cfg.Service.PullImage(ctx, &runtimeapi.ImageSpec{Image: name}, auth, nil)
		if p.err == nil {
			return
		}
		if failure := text(p.err); !slices.Contains(failures, failure) {
			failures = append(failures, failure)
		}
	}
	// Which of several credentials was meant to work is not known here.
	if len(failures) > 1 {
		p.err = errors.New("[" + strings.Join(failures, ", ") + "]")
	}
}

// enter waits for a place among the pulls from the image's registry. The place is given up by leave, or after a turn.
func (m *Manager) enter(ctx context.Context, name string) (leave func(), err error) {
	registry, places := registryOf(name), maxPulls
	if m.cfg.MaxPulls > 0 {
		registry, places = "", m.cfg.MaxPulls
	}
	m.mu.Lock()
	slots, ok := m.slots[registry]
	if !ok {
		slots = make(chan struct{}, places)
		m.slots[registry] = slots
	}
	m.mu.Unlock()
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	release := sync.OnceFunc(func() { <-slots })
	if m.cfg.MaxPulls > 0 {
		return release, nil
	}
	turn := time.AfterFunc(m.turn, release)
	return func() {
		turn.Stop()
		release()
	}, nil
}

// registryOf is the host that the image comes from.
func registryOf(name string) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return ""
	}
	return reference.Domain(named)
}

// inspect returns the image if it is present, else nil.
func (m *Manager) inspect(ctx context.Context, name string) (*Image, error) {
	resp, err := m.cfg.Service.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name}, false)
	if notThere(err) {
		return nil, nil
	}
	if err != nil || resp.Image == nil {
		return nil, err
	}
	image := describe(resp.Image, name)
	return &image, nil
}

func notThere(err error) bool { return grpcstatus.Code(err) == codes.NotFound }

func describe(i *runtimeapi.Image, name string) Image {
	out := Image{Ref: i.Id, Digest: digestOf(i, name), User: i.Username}
	if i.Uid != nil {
		out.UID = &i.Uid.Value
	}
	return out
}

// digestOf is the digest by which the runtime knows the image of that name: one of the name's own repository before
// others, since an image may have been pulled from several.
func digestOf(i *runtimeapi.Image, name string) string {
	of := repositoryOf(name)
	at := slices.IndexFunc(i.RepoDigests, func(digest string) bool { return of != "" && repositoryOf(digest) == of })
	switch {
	case at >= 0:
		return i.RepoDigests[at]
	case len(i.RepoDigests) > 0:
		return i.RepoDigests[0]
	}
	return i.Id
}

// repositoryOf is the repository of an image with its host; "" for none.
func repositoryOf(name string) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return ""
	}
	return named.Name()
}

// pullPolicy is the container's policy, else the default for its tag.
func pullPolicy(c *corev1.Container) corev1.PullPolicy {
	if c.ImagePullPolicy != "" {
		return c.ImagePullPolicy
	}
	if named, err := reference.ParseNormalizedNamed(c.Image); err == nil {
		if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == "latest" {
			return corev1.PullAlways
		}
	}
	return corev1.PullIfNotPresent
}

// normalize gives an image name that says nothing of a version the tag latest, and checks it.
func normalize(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	return reference.TagNameOnly(named).String(), nil
}

func text(err error) string {
	if err == nil {
		return "no such image"
	}
	if s, ok := grpcstatus.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}
