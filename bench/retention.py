"""Facts kept of 17 in a scripted conversation: six in the first two messages, eleven later.

One agent, its 15 messages given; only the memory updates are the model's. A fact counts when its pattern is found
in the memory's text at the end. Patterns were fixed before the first run.
"""

import re
from typing import Any

from memeplex.memory import MemoryScope, create_memory
from memeplex.messages import Conversation, Task, Turn
from memeplex.models import Model, create_model
from memeplex.storage import MemoryVersion

TASK = "Plan the move of a hospital's picture archive into the cloud."
ROLE = "Migration engineer. You plan how the archive is moved."
MESSAGES = [
    "The archive holds 340 TB of pictures. The clinic in Graz is the owner, and its contact is Mrs Leitner.",
    "The move must end by 30 June. The budget is 85,000 euro, and the region has to be eu-south-1.",
    "I would begin with a plan that everybody can agree to before we touch a single disk.",
    "For the transfer I choose two encrypted Snowball devices, since the line has only 200 Mbit/s.",
    "Before the devices leave, each file gets a SHA-256 checksum, written to a manifest.",
    "We should keep everyone informed during the whole move and listen to their worries.",
    "Hot pictures of the last 18 months go to S3 Standard, the rest to Glacier Instant Retrieval.",
    "The DICOM index moves to Aurora PostgreSQL with one replica.",
    "It is important that the work stays calm and that nobody feels hurried by it.",
    "Viewers keep reading through a gateway called Orthanc during the move.",
    "Access is logged in CloudTrail, and the logs are kept for ten years.",
    "Let us look at this again tomorrow with fresh eyes, and then go on step by step.",
    "A dry run with 5 TB takes place on 12 March.",
    "If more than 3 of 1,000 checksums differ, the move stops and rolls back.",
    "After the move the old Isilon cluster stays read-only for 60 days.",
]
FACTS = {
    "340 TB": r"340 ?TB",
    "Graz": r"Graz",
    "Leitner": r"Leitner",
    "30 June": r"30 June|June 30",
    "85,000": r"85[,. ]?000",
    "eu-south-1": r"eu-south-1",
    "Snowball": r"Snowball",
    "200 Mbit/s": r"200 ?Mbit",
    "SHA-256": r"SHA-?256",
    "18 months": r"18 months",
    "Glacier": r"Glacier",
    "Aurora": r"Aurora",
    "Orthanc": r"Orthanc",
    "ten years": r"(ten|10) years",
    "12 March": r"12 March|March 12",
    "3 of 1,000": r"3 (of|in|out of) 1[,. ]?000",
    "60 days": r"60 days",
}


async def kept(model: Model, memory: str, **arguments: Any) -> tuple[int, str, int]:
    """Facts found in the memory after the last message, its text, and the tokens spent."""
    versions: list[MemoryVersion] = []

    async def record(version: MemoryVersion) -> None:
        versions.append(version)

    scope = MemoryScope(agent="engineer", role=ROLE, model=model, record=record)
    mind = create_memory(memory, arguments).open(scope)
    conversation = Conversation(Task(text=TASK))
    for index, text in enumerate(MESSAGES):
        turn = Turn(index=index, speaker="engineer", content=text)
        await mind.update(turn, conversation)
        conversation.append(turn)
    memory_text = (await mind.retrieve(conversation)).text
    found = sum(bool(re.search(pattern, memory_text, re.IGNORECASE)) for pattern in FACTS.values())
    return found, memory_text, sum(version.usage.total.tokens for version in versions)


async def count(name: str, memory: str) -> int:
    """Facts kept by one design with one model."""
    model = create_model(name)
    try:
        found, text, _ = await kept(model, memory)
    finally:
        await model.aclose()
    print(f"{memory}, {found} of {len(FACTS)}:\n{text}\n", flush=True)
    return found
