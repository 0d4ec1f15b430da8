package backends

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
)

const (
	// lookEvery is how often a server that answers is asked whether it still does, and
	// readEvery how often for its documents. One that does not is asked again after a
	// second, and then more and more seldom.
	lookEvery = 30 * time.Second
	readEvery = time.Minute
	soon      = time.Second
	// settle is the shortest pause, however often the Service changes.
	settle = 500 * time.Millisecond
	// attempts are made before a server is said not to answer: a Service may have
	// endpoints of which some are dead.
	attempts = 3
)

// minder asks the server behind one APIService.
type minder struct {
	keeper    *Keeper
	documents *documents
	before    chan struct{} // closed when another of this name has ended; nil for none
	ended     chan struct{}
	stopping  chan struct{}
	pokes     chan struct{}
	asked     chan struct{} // closed when the server has been asked once
	first     sync.Once

	mu      sync.Mutex
	service *apiregistrationv1.APIService
	changed bool // since it was asked

	// Of run alone.
	read    time.Time // when the documents were asked for
	reread  bool      // they are to be asked for again
	said    string    // what was last found wrong with the documents
	failing int
}

func newMinder(k *Keeper, s *apiregistrationv1.APIService, before chan struct{}) *minder {
	return &minder{
		keeper: k, service: s, documents: newDocuments(), before: before,
		ended: make(chan struct{}), stopping: make(chan struct{}), pokes: make(chan struct{}, 1), asked: make(chan struct{}),
	}
}

func (m *minder) now() *apiregistrationv1.APIService {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.service
}

// update has the server be asked in another way, if that has changed.
func (m *minder) update(s *apiregistrationv1.APIService) {
	m.mu.Lock()
	other := !same(m.service, s)
	m.service, m.changed = s, m.changed || other
	m.mu.Unlock()
	if other {
		m.poke()
	}
}

// asking is the APIService as it is asked now, and whether that is in another way than before.
func (m *minder) asking() (s *apiregistrationv1.APIService, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed, m.changed = m.changed, false
	return m.service, changed
}

func (m *minder) poke() {
	select {
	case m.pokes <- struct{}{}:
	default: // one that waits is enough
	}
}

// stop ends the asking; the caller sees to it that it is called once.
func (m *minder) stop() { close(m.stopping) }

// run asks until ctx ends, or stop is called.
func (m *minder) run(ctx context.Context) {
	name := m.now().Name
	defer m.keeper.ended(name, m)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-m.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	if m.before != nil {
		<-m.before
	}
	defer m.documents.close()
	defer m.keeper.forget(name)
	defer forgetAvailability(name)
	m.keeper.discovery.AddAPIService(m.now(), m.documents) // it is known that there is something
	for ctx.Err() == nil {
		pause := lookEvery
		if err := m.round(ctx); err != nil {
			pause = min(soon<<min(m.failing, 5), longest)
			m.failing++
		} else {
			m.failing = 0
		}
		m.first.Do(func() { close(m.asked) })
		m.wait(ctx, pause)
	}
	m.first.Do(func() { close(m.asked) })
}

// wait returns after a pause, or earlier if something has changed.
func (m *minder) wait(ctx context.Context, pause time.Duration) {
	settled, over := time.NewTimer(settle), time.NewTimer(pause)
	defer settled.Stop()
	defer over.Stop()
	select {
	case <-ctx.Done():
		return
	case <-settled.C:
	}
	select {
	case <-ctx.Done():
	case <-over.C:
	case <-m.pokes:
	}
}

// round asks once. An error says that it should be asked again soon.
func (m *minder) round(ctx context.Context) error {
	s, changed := m.asking()
	m.reread = m.reread || changed
	b, err := newBackend(s, &m.keeper.config, &m.keeper.ledger)
	if err != nil {
		return m.report(ctx, answered(err), nil, err)
	}
	defer b.close()
	now := unreachable(s, m.keeper.stateOf(s))
	if now == nil {
		err = m.alive(ctx, b)
		now = answered(err)
	} else {
		err = errors.New(now.Message)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		if m.documents.lost(versionPath(s)) {
			m.keeper.discovery.AddAPIService(s, m.documents)
		}
		m.reread = true
		return m.report(ctx, now, nil, err)
	}
	if err := m.report(ctx, now, nil, nil); err != nil || !m.reread && time.Since(m.read) < readEvery {
		return err
	}
	return m.readAll(ctx, b)
}

// alive asks endpoints until one answers. The next is asked when one fails, or says nothing
// for a while: a server that is well is asked once.
func (m *minder) alive(ctx context.Context, b *backend) (err error) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	results := make(chan error, attempts)
	for asked, answered := 0, 0; answered < attempts; {
		var silence <-chan time.Time
		if asked < attempts {
			go func() { results <- b.alive(ctx) }()
			asked++
			silence = time.After(answerPatience / attempts)
		}
		select {
		case err = <-results:
			answered++
			if err == nil {
				return nil
			}
		case <-silence:
		}
	}
	return err
}

// readAll asks for the documents and says what is wrong with them.
func (m *minder) readAll(ctx context.Context, b *backend) error {
	changed, err := m.documents.read(ctx, b)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if changed {
		err = errors.Join(err, m.keeper.publish(b.service, m.documents))
	}
	m.read, m.reread = time.Now(), err != nil
	condition := &apiregistrationv1.APIServiceCondition{Type: DocumentsRead, Status: apiregistrationv1.ConditionTrue}
	if err != nil {
		condition.Status, condition.Reason, condition.Message = apiregistrationv1.ConditionFalse, "NotRead", cut(err.Error())
		if errors.Is(err, errTooLarge) {
			condition.Reason = "TooLarge"
		}
		if m.said != condition.Message {
			klog.FromContext(ctx).Error(
				err, "Documents of the API server behind an APIService are missing", "apiService", b.service.Name,
			)
		}
	}
	m.said = condition.Message
	return m.report(ctx, nil, condition, err)
}

// report writes the status, if it is another, and returns what was found, or that it
// could not be written.
func (m *minder) report(ctx context.Context, available, documents *apiregistrationv1.APIServiceCondition,
	found error) error {
	current, err := m.keeper.config.APIServices.Lister().Get(m.now().Name)
	if apierrors.IsNotFound(err) {
		return found
	}
	if err != nil {
		return errors.Join(found, err)
	}
	next := current.DeepCopy()
	if available != nil {
		setAvailability(current.Name, available)
		available.LastTransitionTime = metav1.Now()
		helper.SetAPIServiceCondition(next, *available)
	}
	if documents != nil {
		documents.LastTransitionTime = metav1.Now()
		documented(next, *documents)
	}
	if equality.Semantic.DeepEqual(current.Status, next.Status) {
		return found
	}
	if _, err = m.keeper.config.Client.APIServices().UpdateStatus(ctx, next,
		metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
		err = nil
	}
	return errors.Join(found, err)
}
