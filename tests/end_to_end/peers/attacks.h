// These functions attack a server as one hostile client, until they are told to
// stop.
#pragma once

#include <atomic>
#include <string>

namespace convgrad {

// Attacks the server at `address` until `stop`, then closes its connections.
// The attacker's address is 127.0.0.2, so it is another client than those on
// 127.0.0.1.
using Attack = void (*)(const std::string& address,
                        const std::atomic<bool>& stop);

// Opens a thousand connections and sends nothing.
void HoldConnections(const std::string& address, const std::atomic<bool>& stop);
// Opens calls that have only a header, as many as possible on one connection
// after the other.
void FloodWithHeaders(const std::string& address,
                      const std::atomic<bool>& stop);
// Declares 24 messages of 30 MiB, sends the beginning of each, and stops.
void SendHalves(const std::string& address, const std::atomic<bool>& stop);
// Sends eight header blocks with a deadline of a day, and no message.
void PromiseMessages(const std::string& address, const std::atomic<bool>& stop);
// Opens eight streams with large slices and sends a few bytes a second.
void Trickle(const std::string& address, const std::atomic<bool>& stop);
// Asks for 16 answers of 30 MiB and reads none.
void LeaveAnswers(const std::string& address, const std::atomic<bool>& stop);
// Sends whole requests, 200 a second, and leaves at once.
void SendAndLeave(const std::string& address, const std::atomic<bool>& stop);

}  // namespace convgrad
