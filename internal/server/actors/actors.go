// Package actors are the control loops as the API knows them: each with an account of its own, with the rights of that
// account's role, and with events that cannot bury those of others.
package actors

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/apiserver"
	"github.com/everynode/everynode/internal/apiserver/bootstrap"
	"github.com/everynode/everynode/internal/server/writers"
	"github.com/everynode/everynode/internal/storage/members"
)

// Actor is a control loop as the API knows it: with an account of its own, and
// the rights of that account's role, by whatever way it writes.
type Actor struct {
	Config *restclient.Config
	Client kubernetes.Interface
	Inside writers.Inside
	events record.EventBroadcaster
}

// Recorder returns a recorder of events in the name of a component.
func (a *Actor) Recorder(component string) record.EventRecorder {
	return NewLimitedRecorder(a.events.NewRecorder(KnownKinds, corev1.EventSource{Component: component}),
		clock.RealClock{})
}

// Metadata returns a client for the metadata of objects of any kind.
func (a *Actor) Metadata() (metadata.Interface, error) {
	objects, err := metadata.NewForConfig(a.Config)
	if err != nil {
		return nil, fmt.Errorf("make a metadata client: %w", err)
	}
	return objects, nil
}

// Actors makes control loops, as the API knows them.
type Actors struct {
	ctx context.Context //nolint:containedctx // Recorders of events take none, and end with the control loops.
	api *apiserver.Server
	all []*Actor
}

// New makes control loops that end with ctx, and whose writes are in the turn that it has, if any.
func New(ctx context.Context, api *apiserver.Server) *Actors { return &Actors{ctx: ctx, api: api} }

// Controller returns the control loop that runs under the account of that name.
func (a *Actors) Controller(name string) (*Actor, error) {
	return a.Account(bootstrap.ControllerAccount(name))
}

// Account returns the control loop that runs under an account.
func (a *Actors) Account(account user.Info) (*Actor, error) {
	config := a.ConfigFor(account)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client of %s: %w", account.GetName(), err)
	}
	made := &Actor{
		Config: config, Client: client, Inside: writers.Through(a.api.InsideDoorFor(account).In(members.TurnOf(a.ctx))),
		events: NewBroadcaster(a.ctx),
	}
	made.events.StartRecordingToSink(made.Inside.ControllerEvents(a.ctx,
		&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")}))
	a.all = append(a.all, made)
	return made, nil
}

// ConfigFor is what clients of an account are made from, whose writes are in the name of the
// turn in which the control loops work.
func (a *Actors) ConfigFor(account user.Info) *restclient.Config {
	config := a.api.ConfigFor(account)
	if turn := members.TurnOf(a.ctx); turn != nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return inTurn{next, turn} })
	}
	return config
}

// inTurn makes requests in the name of a turn.
type inTurn struct {
	http.RoundTripper
	turn *members.Turn
}

// RoundTrip implements http.RoundTripper.
func (t inTurn) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.RoundTripper.RoundTrip(r.WithContext(members.InTurn(r.Context(), t.turn)))
}

// Stop ends the recording of events.
func (a *Actors) Stop() {
	for _, made := range a.all {
		made.events.Shutdown()
	}
}
