package resolver

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/dchest/siphash"
)

// Cookies let a client tell our replies from forged ones (RFC 7873). A server could also use them to tell clients from
// forged ones; we answer whoever asks, with a cookie or without, with a good one or a bad one, and so never say
// BADCOOKIE: one reply that is no answer is enough for libcluster to let go of every node.
const (
	clientCookieLen = 8
	serverCookieLen = 16 // version, reserved, time, hash (RFC 9018 §4)
	cookieVersion   = 1

	cookieRenewal = 30 * time.Minute // age from which a client gets another one (RFC 9018 §4.3)
	cookieAhead   = 5 * time.Minute  // how far in the future one may come from

	secretLife = 24 * time.Hour
)

// cookies makes the server's part of cookies. Any goroutine may use it.
type cookies struct {
	secret atomic.Pointer[secret]
}

// secret is the key of the hash.
type secret struct {
	k0, k1 uint64
	since  time.Time
}

func newCookies(now time.Time) *cookies {
	c := new(cookies)
	c.secret.Store(newSecret(now))
	return c
}

func newSecret(now time.Time) *secret {
	var key [16]byte
	_, _ = rand.Read(key[:]) // never fails
	return &secret{k0: binary.LittleEndian.Uint64(key[:8]), k1: binary.LittleEndian.Uint64(key[8:]), since: now}
}

// reply returns the cookie for a client: the one that it sent as long as that is good, else a new one.
func (c *cookies) reply(given []byte, client netip.Addr, now time.Time) []byte {
	key := c.secret.Load()
	if now.Sub(key.since) >= secretLife {
		c.secret.CompareAndSwap(key, newSecret(now))
		key = c.secret.Load()
	}
	if len(given) == clientCookieLen+serverCookieLen {
		made := time.Unix(int64(binary.BigEndian.Uint32(given[12:])), 0)
		age := now.Sub(made)
		if age < cookieRenewal && age > -cookieAhead && string(key.cookie(given, client, made)) == string(given) {
			return given
		}
	}
	return key.cookie(given, client, now)
}

// cookie returns the client's part of a cookie and the server's (RFC 9018 §4.4).
func (s *secret) cookie(given []byte, client netip.Addr, at time.Time) []byte {
	cookie := make([]byte, 0, clientCookieLen+serverCookieLen+16)
	cookie = append(cookie, given[:clientCookieLen]...)
	cookie = append(cookie, cookieVersion, 0, 0, 0)
	cookie = binary.BigEndian.AppendUint32(cookie, uint32(at.Unix()))
	hash := siphash.Hash(s.k0, s.k1, append(cookie, client.Unmap().AsSlice()...))
	return binary.LittleEndian.AppendUint64(cookie, hash)
}
