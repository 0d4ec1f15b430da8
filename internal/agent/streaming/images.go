package streaming

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/everynode/everynode/internal/node/imagepull"
)

// Images pulls images before pods need them, and keeps them. Errors of apierrors go to the caller as they are.
type Images interface {
	// Check says what is wrong with the name of an image.
	Check(image string) error
	Pull(ctx context.Context, image string, pin, always bool) imagepull.Progress
	Pins() ([]string, error)
	// Unpin lets an image go, and says whether it was kept.
	Unpin(image string) (bool, error)
}

func (s *Server) serveImages(mux *http.ServeMux) {
	mux.HandleFunc("POST "+imagepull.PullPath, s.pullImage)
	mux.HandleFunc("GET "+imagepull.PinsPath, s.pins)
	mux.HandleFunc("DELETE "+imagepull.PinsPath, s.unpin)
}

// pullImage answers with how the pull goes, until it is over or the caller goes away, which ends it.
func (s *Server) pullImage(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	pin, pinErr := strconv.ParseBool(cmp.Or(query.Get(imagepull.Pin), "false"))
	always, alwaysErr := strconv.ParseBool(cmp.Or(query.Get(imagepull.Always), "false"))
	if pinErr != nil || alwaysErr != nil {
		writeError(w, r, apierrors.NewBadRequest(imagepull.Pin+" and "+imagepull.Always+" must be true or false"))
		return
	}
	image := query.Get(imagepull.Image)
	if err := s.cfg.Images.Check(image); err != nil {
		writeError(w, r, err)
		return
	}
	ended := make(chan imagepull.Progress, 1)
	go func() { ended <- s.cfg.Images.Pull(r.Context(), image, pin, always) }()
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	beat := time.NewTicker(imagepull.Beat)
	defer beat.Stop()
	for {
		now := imagepull.Progress{State: imagepull.Pulling}
		select {
		case now = <-ended:
		case <-beat.C:
		}
		// A caller that is gone ends the pull, and that ends this.
		if out.Encode(now) == nil {
			_ = http.NewResponseController(w).Flush()
		}
		if now.State != imagepull.Pulling {
			return
		}
	}
}

func (s *Server) pins(w http.ResponseWriter, r *http.Request) {
	names, err := s.cfg.Images.Pins()
	if err != nil {
		writeError(w, r, err)
		return
	}
	writeJSON(w, r, imagepull.Pins{Images: append([]string{}, names...)})
}

func (s *Server) unpin(w http.ResponseWriter, r *http.Request) {
	image := r.URL.Query().Get(imagepull.Image)
	if err := s.cfg.Images.Check(image); err != nil {
		writeError(w, r, err)
		return
	}
	removed, err := s.cfg.Images.Unpin(image)
	if err != nil {
		writeError(w, r, err)
		return
	}
	writeJSON(w, r, imagepull.Unpinned{Removed: removed})
}
