package apiserver

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/apiserver/bootstrap"
	"github.com/everynode/everynode/internal/apiserver/bootstrap/services"
	"github.com/everynode/everynode/internal/apiserver/fairness"
	"github.com/everynode/everynode/internal/apiserver/networkapi"
	"github.com/everynode/everynode/internal/apiserver/starthook"
)

// addHooks adds what runs once the server answers. Each hook is part of
// readiness: the server is ready when all have returned.
func (s *Server) addHooks(cfg Config, client kubernetes.Interface, security *security, networks *networkapi.API) error {
	hooks := []struct {
		name string
		run  func(ctx context.Context) error
	}{
		{"everynode/informers", func(ctx context.Context) error {
			s.informers.Start(ctx.Done())
			if err := security.revoked.Run(ctx); err != nil {
				return err
			}
			return security.rolesReady(ctx)
		}},
		{"everynode/networks", func(ctx context.Context) error { return networks.Run(ctx, security.nodes) }},
		{"everynode/fairness", starthook.Insist(func(ctx context.Context) error { return fairness.Start(ctx, client) })},
		{"everynode/bootstrap", starthook.Insist(func(ctx context.Context) error {
			if err := bootstrap.Ensure(ctx, client); err != nil {
				return err
			}
			if err := services.Ensure(ctx, cfg.network(), client); err != nil {
				return err
			}
			if err := tellTrusted(ctx, cfg.PKI, client); err != nil {
				return err
			}
			return security.defaultsKnown(ctx)
		})},
	}
	for _, h := range hooks {
		if err := s.generic.AddPostStartHook(h.name, starthook.UnlessStopped(h.run)); err != nil {
			return fmt.Errorf("add the start hook %s: %w", h.name, err)
		}
	}
	return nil
}
