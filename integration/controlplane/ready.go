package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// probeInterval is the time between two questions whether a component is ready:
	// there is no event to wait for.
	probeInterval = 50 * time.Millisecond
	// probeLimit bounds one question.
	probeLimit = 5 * time.Second
)

// awaitReady asks a component until it says that it is ready, its process ends, or
// readyLimit has passed.
func (cp *ControlPlane) awaitReady(ctx context.Context, p *process, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("not ready within %s", readyLimit))
	defer cancel()
	client, err := cp.probeClient()
	if err != nil {
		return err
	}

	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		notReady := probe(ctx, client, url)
		if notReady == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.done:
			return fmt.Errorf("it ended by itself: %s", p.outcome())
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), notReady)
		}
	}
}

// probeClient speaks as the admin, whom every component lets ask.
func (cp *ControlPlane) probeClient() (*http.Client, error) {
	transport, err := rest.TransportFor(cp.adminConfig())
	if err != nil {
		return nil, fmt.Errorf("make the client that asks whether a component is ready: %w", err)
	}
	return &http.Client{Transport: transport, Timeout: probeLimit}, nil
}

// probe is nil if the component is ready, else what it said.
func probe(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return fmt.Errorf("read the answer of %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
