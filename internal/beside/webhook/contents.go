package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/beside/fresh"
	"github.com/everynode/everynode/internal/change/content"
)

// trustFor is how long a content counts as it was read. Somebody may have put another object in place of a copy since.
const trustFor = 10 * time.Second

// proofLasts is how long a content counts as it was last proven whole, while it cannot be proven again. Within it
// another leader takes over and makes a copy again, and an API server that starts again answers.
const proofLasts = time.Minute

// forgetAfter is for how long a content is kept of which no pod was made.
const forgetAfter = 10 * time.Minute

// proveWithin is how long a content may take to be read. Who asks does not wait that long; the next one has it.
const proveWithin = 10 * time.Second

// contents are the contents of which pods were made a short time ago.
type contents struct {
	client  kubernetes.Interface
	now     func() time.Time
	reading fresh.Reads[given, *content.Content]

	mu   sync.Mutex
	read map[given]proven
}

// given is a content of a DaemonSet.
type given struct {
	set types.UID
	id  string
}

// proven is a content that was what its copies hold at that time; nil for none.
type proven struct {
	content  *content.Content
	at, used time.Time
}

// within reports whether the proof is no older than that.
func (p *proven) within(limit time.Duration, now time.Time) bool {
	return p.content != nil && now.Sub(p.at) < limit
}

// members are those of a content of the DaemonSet. Its list and its copies are read from the API and hashed, by one
// for all who ask: what somebody else has put there is an error. Of a content that was proven a short time before a
// copy may be gone, for the controller makes it again and the pod waits for it, and the API may not answer.
func (c *contents) members(ctx context.Context, set metav1.Object, id string) ([]content.Member, error) {
	key := given{set.GetUID(), id}
	now := c.now()
	known := c.used(key, now)
	if known.within(trustFor, now) {
		return known.content.Members, nil
	}
	got, err := c.proven(ctx, set, key)
	switch {
	case err == nil:
		return got.Members, nil
	case known.within(proofLasts, c.now()) && !errors.Is(err, content.ErrSpoiled) && !apierrors.IsForbidden(err):
		return known.content.Members, nil
	}
	return nil, fmt.Errorf("read content %s of DaemonSet %s/%s: %w", id, set.GetNamespace(), set.GetName(), err)
}

// proven waits for what a content is read as, which one does for all.
func (c *contents) proven(ctx context.Context, set metav1.Object, key given) (*content.Content, error) {
	return c.reading.Get(ctx, key, func(ctx context.Context) (*content.Content, error) {
		began := c.now()
		known := c.used(key, began)
		if known.within(trustFor, began) {
			return known.content, nil // somebody has read it meanwhile
		}
		reading, cancel := context.WithTimeout(ctx, proveWithin)
		defer cancel()
		is, err := c.prove(reading, set, key.id, known.content)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.read[key] = proven{content: is, at: began, used: c.now()}
		return is, nil
	})
}

// used returns what is known of a content, and forgets those that nobody asks for any more.
func (c *contents) used(key given, now time.Time) proven {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, p := range c.read {
		if now.Sub(p.used) > forgetAfter {
			delete(c.read, k)
		}
	}
	known, is := c.read[key]
	if is {
		known.used = now
		c.read[key] = known
	}
	return known
}

// prove reads a content, and returns it if it is what its copies hold. known is what it was proven as before; nil if it
// was not.
func (c *contents) prove(ctx context.Context, set metav1.Object, id string, known *content.Content,
) (*content.Content, error) {
	namespace := set.GetNamespace()
	is, err := c.list(ctx, namespace, content.ManifestName(set.GetName(), id), id)
	switch {
	case errors.Is(err, content.ErrGone) && known != nil:
		is = known // no other list can add up to the ID
	case err != nil:
		return nil, err
	case known != nil && !is.Same(known):
		return nil, fmt.Errorf("the list of content %s: %w", id, content.ErrSpoiled)
	}
	var key []byte
	if content.Keyed(is.Refs()) {
		key, err = c.key(ctx, namespace)
		if err != nil {
			return nil, err
		}
	}
	err = is.Prove(key, set.GetName(), func(of content.Ref) (*content.Object, error) {
		return c.held(ctx, namespace, of)
	})
	if key != nil && errors.Is(err, content.ErrSpoiled) {
		err = fmt.Errorf("%w, or Secret %s is another than that with which it was made", err, content.KeyName)
	}
	return is, err
}

// list reads the list of a content.
func (c *contents) list(ctx context.Context, namespace, name, id string) (*content.Content, error) {
	m, err := c.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("ConfigMap %s: %w", name, content.ErrGone)
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s: %w", name, err)
	}
	is, err := content.ReadManifest(m.Data)
	if err != nil || is.ID != id {
		return nil, fmt.Errorf("ConfigMap %s: %w", name, content.ErrSpoiled)
	}
	return &is, nil
}

// key is what the hashes of a namespace's Secrets are made with.
func (c *contents) key(ctx context.Context, namespace string) ([]byte, error) {
	s, err := c.client.CoreV1().Secrets(namespace).Get(ctx, content.KeyName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the key of contents: %w", err)
	}
	key := content.KeyOf(s)
	if key == nil {
		return nil, fmt.Errorf("Secret %s holds no key", content.KeyName)
	}
	return key, nil
}

// held is what a copy holds; nil if there is none.
func (c *contents) held(ctx context.Context, namespace string, of content.Ref) (*content.Object, error) {
	read := c.configMap
	if of.Kind == content.Secret {
		read = c.secret
	}
	o, err := read(ctx, namespace, of.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", of, err)
	}
	return o, nil
}

func (c *contents) configMap(ctx context.Context, namespace, name string) (*content.Object, error) {
	m, err := c.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return content.OfConfigMap(m), nil
}

func (c *contents) secret(ctx context.Context, namespace, name string) (*content.Object, error) {
	s, err := c.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return content.OfSecret(s), nil
}
